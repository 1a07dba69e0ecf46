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
	return prefix + Tail(key), nil
}

// Tail returns what the name of a key ends with, behind the prefix of its limit: up to 130
// bytes, by which a key that Redis is to be asked about later can be remembered.
func Tail(key string) string { return TailOf(Short(key)) }

// Short returns a text of up to 128 bytes that stands for a key, and for no other: the key
// itself, unless it is hashed.
func Short(key string) string {
	if key != "" && len(key) <= longestPlain && strings.IndexByte(key, '}') < 0 {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "#{" + base64.RawURLEncoding.EncodeToString(sum[:]) + "}"
}

// TailOf returns the Tail of the key that a text of Short stands for.
func TailOf(short string) string {
	if strings.IndexByte(short, '}') < 0 {
		return "{" + short + "}"
	}
	return short
}

// prefix returns what the names begin with of keys whose words are of that family.
func (s *Store) prefix(family string) string {
	p := "ral:" + s.options.Name + ":" + family + ":"
	if s.options.Tag != "" {
		p += "{" + s.options.Tag + "}"
	}
	return p
}
