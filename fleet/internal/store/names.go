package store

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

const (
	// maxKey is the longest key, in bytes.
	maxKey = 1 << 16
	// maxPlain is the longest key that is not hashed, in bytes.
	maxPlain = 128
)

// CheckKey returns an error if the key is longer than 64 KiB.
func CheckKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("%w: it has %d bytes", ErrKeyTooLong, len(key))
	}
	return nil
}

// nameIn returns a key's name in Redis: prefix{key}. A cluster places the key by its hash tag, the part
// in braces. A closing brace in a key would end the tag early, an empty key would have no tag, and a long
// key would take memory. So these keys are hashed, to prefix#{hash}, which is no other key's name. A key
// may have any bytes.
func nameIn(prefix, key string) (string, error) {
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
	if key != "" && len(key) <= maxPlain && strings.IndexByte(key, '}') < 0 {
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

// name returns the name of something that a limit keeps besides its keys, with the hash tag of Options.Tag. If what
// ends with a colon, the result is the prefix of the names of many keys.
func (o Options) name(what string) string {
	name := "ral:" + o.Name + ":" + what
	if o.Tag != "" {
		name += "{" + o.Tag + "}"
	}
	return name
}

// hashTag returns the part of a name in braces, by which a cluster places it.
func hashTag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}
