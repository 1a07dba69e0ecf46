package engine

import (
	"bytes"
	"crypto/rand"
	"sync"

	"github.com/ral-limiter/ral/internal/keycodec"
	"github.com/ral-limiter/ral/table"
)

// hasher makes the hashes under which a saved state has its keys if it names none. Any number
// of goroutines may use it.
type hasher[K comparable] struct {
	codec  keycodec.Codec[K]
	secret []byte
	free   sync.Pool // of *hashing
}

// hashing is what one goroutine needs to hash keys.
type hashing struct {
	hasher     *keycodec.Hasher
	key, again []byte
}

// secretSize is the length of a secret in bytes.
const secretSize = 32

// newHasher returns a hasher by the secret of a file, or by a new one if that is nil.
func newHasher[K comparable](codec keycodec.Codec[K], secret []byte) *hasher[K] {
	if secret == nil {
		secret = make([]byte, secretSize)
		_, _ = rand.Read(secret) // it never fails
	}
	return &hasher[K]{codec: codec, secret: secret}
}

// hash returns the hash of a key. ok is false if its codec refuses it: no state has such a key.
func (h *hasher[K]) hash(key K) (hash [table.HashSize]byte, ok bool) {
	by, _ := h.free.Get().(*hashing)
	if by == nil {
		by = &hashing{hasher: keycodec.NewHasher(h.secret)}
	}
	var err error
	if by.key, err = encode(h.codec, by.key[:0], key); err == nil {
		hash = by.hasher.Hash(by.key)
	}
	ok = err == nil
	if _, own := h.codec.(*codec[K]); own && ok {
		// A user's codec may write a key in other bytes each time, as a cipher does.
		by.again, err = encode(h.codec, by.again[:0], key)
		ok = err == nil && bytes.Equal(by.again, by.key)
	}
	h.free.Put(by)
	return hash, ok
}
