package store

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	longestKey = 1 << 16
	// longestPlain is the longest key that is not hashed.
	longestPlain = 128
)

// CheckKey returns an error if the key is longer than 64 KiB.
func CheckKey(key string) error {
	if len(key) > longestKey {
		return fmt.Errorf("%w: it has %d bytes", ErrKeyTooLong, len(key))
	}
	return nil
}

// name returns a key's name in Redis: prefix{key}, placed in a cluster by the part in braces. A key
// with a closing brace would end early, an empty key has no tag, and a long key takes memory. These
// are hashed, to prefix#{hash}, which is no other key's name. Any bytes are a key.
func (s *Store) name(prefix, key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return prefix + Tail(key), nil
}

// Tail returns the end of a key's name, up to 130 bytes. It can stand for the key in later
// requests.
func Tail(key string) string { return TailOf(Short(key)) }

// Short returns a unique text of up to 128 bytes for a key: the key itself unless it must be
// hashed.
func Short(key string) string {
	if key != "" && len(key) <= longestPlain && strings.IndexByte(key, '}') < 0 {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "#{" + base64.RawURLEncoding.EncodeToString(sum[:]) + "}"
}

// TailOf returns the Tail of a key from its Short.
func TailOf(short string) string {
	if strings.IndexByte(short, '}') < 0 {
		return "{" + short + "}"
	}
	return short
}

// Fingerprint returns the start of the SHA-256 of the key of a [Tail], in hexadecimal, as logs of
// package httplimit show keys.
func Fingerprint(tail string) string {
	key, hashed := strings.CutPrefix(tail, "#")
	key = strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}")
	sum := sha256.Sum256([]byte(key))
	if hashed {
		_, _ = base64.RawURLEncoding.Decode(sum[:], []byte(key)) // as Short has made it
	}
	return hex.EncodeToString(sum[:6])
}

func (s *Store) prefix(family string) string {
	p := "ral:" + s.options.Name + ":" + family + ":"
	if s.options.Tag != "" {
		p += "{" + s.options.Tag + "}"
	}
	return p
}
