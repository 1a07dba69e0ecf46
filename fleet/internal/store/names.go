package store

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

const (
	// longestKey is the longest key that is accepted: 64 KiB.
	longestKey = 1 << 16
	// longestPlain is the longest that is part of a name as it is.
	longestPlain = 128
)

// CheckKey returns an error if the key is none that is accepted.
func CheckKey(key string) error {
	if len(key) > longestKey {
		return fmt.Errorf("%w: it has %d bytes", ErrKeyTooLong, len(key))
	}
	return nil
}

// name returns what Redis knows a key by: prefix{key}. The braces say by which part a
// cluster places it. A key that contains a brace that closes would not end there, between
// braces that hold nothing a cluster would look at the whole name, and a long key would
// take memory, so that these are hashed, to prefix#{hash}, which is no other key's name.
// Any bytes are a key.
func (s *Store) name(prefix, key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	if key != "" && len(key) <= longestPlain && strings.IndexByte(key, '}') < 0 {
		return prefix + "{" + key + "}", nil
	}
	sum := sha256.Sum256([]byte(key))
	return prefix + "#{" + base64.RawURLEncoding.EncodeToString(sum[:]) + "}", nil
}

// prefix returns what the names begin with of keys whose words are of that family.
func (s *Store) prefix(family string) string {
	p := "ral:" + s.options.Name + ":" + family + ":"
	if s.options.Tag != "" {
		p += "{" + s.options.Tag + "}"
	}
	return p
}
