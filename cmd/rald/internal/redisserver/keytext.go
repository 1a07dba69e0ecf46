package redisserver

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
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
