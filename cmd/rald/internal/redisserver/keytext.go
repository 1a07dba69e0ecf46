package redisserver

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

// KeyText returns an engine's key as text for operators: the key itself, or the name of its
// configured limit and the key in quotes. Keys with quotes or unprintable characters are in quotes
// as in Go. Texts of different keys differ.
func KeyText(key string) string {
	if sent, ok := shown(key); ok {
		return plainOrQuoted(sent)
	}
	name, rest, _ := strings.Cut(key[len(mark):], mark)
	return name + " " + strconv.Quote(rest)
}

func plainOrQuoted(key string) string {
	if key == "" || strings.TrimSpace(key) != key || strconv.Quote(key) != `"`+key+`"` {
		return strconv.Quote(key)
	}
	return key
}

// ParseKey returns the key of a text.
func ParseKey(text string) (key string, err error) {
	quote := strings.IndexByte(text, '"')
	if quote < 0 {
		return stored([]byte(text)), nil
	}
	if key, err = strconv.Unquote(text[quote:]); err != nil {
		return "", fmt.Errorf("%.80q has quotes and does not end with a string in quotes: a key, or the name of a limit and a key in quotes is accepted", text)
	}
	if quote == 0 {
		return stored([]byte(key)), nil
	}
	name, ok := strings.CutSuffix(text[:quote], " ")
	if !ok || strings.Contains(name, mark) {
		return "", fmt.Errorf("%.80q is not the text of a key: the name of a limit, a space and a key in quotes is accepted", text)
	}
	return configured.Prefix(name) + string(bounded([]byte(key))), nil
}

// mark begins the keys of configured limits: see configured.Prefix. Any other key is itself, with
// another mark before a leading mark: no key can be a configured limit's.
const mark = configured.Mark

// maxKey bounds clients' keys that stay in memory, in bytes.
const maxKey = 512

// bounded returns a client's key, or its hash if it is above maxKey. The hash is a key that clients
// may send, too.
func bounded(key []byte) []byte {
	if len(key) > maxKey {
		return []byte(clientaddr.Hashed(string(key)))
	}
	return key
}

// stored returns an engine's key for a key under no configured limit.
func stored(key []byte) string {
	key = bounded(key)
	if len(key) > 0 && key[0] == mark[0] {
		return mark + string(key)
	}
	return string(key)
}

// shown returns the client's key, or false for a configured limit's.
func shown(key string) (string, bool) {
	if !strings.HasPrefix(key, mark) {
		return key, true
	}
	return key[1:], strings.HasPrefix(key[1:], mark)
}
