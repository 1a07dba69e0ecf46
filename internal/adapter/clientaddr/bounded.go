package clientaddr

import "crypto/sha256"

// maxKeyLength bounds keys by header values, in bytes. Common API keys are shorter.
const maxKeyLength = 64

// Bounded returns a value, or its hash if it is long, behind a byte that no header field can hold.
func Bounded(value string) string {
	if len(value) <= maxKeyLength {
		return value
	}
	return Hashed(value)
}

// Hashed returns a value's hash in 33 bytes, of which the first is 0.
func Hashed(value string) string {
	// The first byte stays 0.
	var hashed [1 + sha256.Size]byte
	hash := sha256.New()
	// In pieces, so that a long value is not copied as a whole.
	for piece := make([]byte, 512); value != ""; {
		n := copy(piece, value)
		hash.Write(piece[:n])
		value = value[n:]
	}
	hash.Sum(hashed[:1])
	return string(hashed[:])
}
