package answer

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Structured fields (RFC 9651) for RateLimit and RateLimit-Policy: a list of strings with
// parameters.

// maxItems bounds the limits read of a field. Further limits are checked and dropped.
const maxItems = 16

// maxLength bounds the bytes of all lines of a field.
const maxLength = 8 << 10

// item is a string or token with its parameters. Absent numbers are below 0.
type item struct {
	// unit is empty if it is absent.
	name, unit    string
	q, w, r, t, a int64
}

// parseList parses the lines of a field as a single list and returns its length, 0 if malformed.
func parseList(items []item, lines []string) (n int) {
	length := 0
	for _, line := range lines {
		if length += len(line); length > maxLength {
			return 0
		}
		p := parser{line}
		p.skip(" \t")
		for p.rest != "" {
			it, ok := p.item()
			if !ok {
				return 0
			}
			if n < len(items) {
				items[n] = it
				n++
			}
			p.skip(" \t")
			if p.rest == "" {
				break
			}
			if !p.take(',') {
				return 0
			}
			// A trailing comma is malformed.
			if p.skip(" \t"); p.rest == "" {
				return 0
			}
		}
	}
	return n
}

type parser struct{ rest string }

func (p *parser) skip(any string) { p.rest = strings.TrimLeft(p.rest, any) }

func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) while(ok func(c byte) bool) (s string) {
	i := 0
	for i < len(p.rest) && ok(p.rest[i]) {
		i++
	}
	s, p.rest = p.rest[:i], p.rest[i:]
	return s
}

// item parses a string or token and its parameters.
func (p *parser) item() (it item, ok bool) {
	it.q, it.w, it.r, it.t, it.a = -1, -1, -1, -1, -1
	v, ok := p.value()
	if !ok || !v.isText {
		return it, false
	}
	it.name = v.text
	for p.take(';') {
		p.skip(" ")
		if p.rest == "" || !isLower(p.rest[0]) && p.rest[0] != '*' {
			return it, false
		}
		key, v := p.while(isKey), value{n: -1}
		if p.take('=') {
			if v, ok = p.value(); !ok {
				return it, false
			}
		}
		// The last of equal parameters counts.
		switch key {
		case "q":
			it.q = v.n
		case "w":
			it.w = v.n
		case "r":
			it.r = v.n
		case "t":
			it.t = v.n
		case "a":
			it.a = v.n
		case "qu":
			if it.unit = v.text; !v.isText {
				it.unit = "unknown"
			}
		}
	}
	return it, true
}

// value is a string or a token, a natural number n, or any other value with an n below 0.
type value struct {
	isText bool
	text   string
	n      int64
}

func (p *parser) value() (v value, ok bool) {
	v.n = -1
	if p.rest == "" {
		return v, false
	}
	switch c := p.rest[0]; {
	case c == '"':
		return p.quoted()
	case isLower(c) || 'A' <= c && c <= 'Z' || c == '*':
		return value{isText: true, text: p.while(isToken), n: -1}, true
	}
	before := p.rest
	negative := p.take('-')
	if digits := p.while(isDigit); 0 < len(digits) && len(digits) <= 15 && (p.rest == "" || p.rest[0] != '.') {
		if v.n, _ = strconv.ParseInt(digits, 10, 64); negative {
			v.n = -v.n
		}
		return v, true
	}
	p.rest = before
	other := others.FindString(p.rest)
	p.rest = p.rest[len(other):]
	text, err := url.PathUnescape(strings.TrimPrefix(other, "%"))
	return v, other != "" && err == nil && utf8.ValidString(text)
}

// others are the values that no limit has: decimals, booleans, bytes, dates and display strings.
var others = regexp.MustCompile(`^(-?\d{1,12}\.\d{1,3}|\?[01]|:[A-Za-z0-9+/]*=*:|@-?\d{1,15}|%"([ !#$&-~]|%[0-9a-f]{2})*")`)

// quoted parses a string of printable ASCII.
func (p *parser) quoted() (v value, ok bool) {
	v.n = -1
	for i, escaped := 1, false; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c < ' ' || c > '~':
			return v, false
		case c == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return v, false
			}
			escaped = true
		case c == '"':
			v.isText, v.text = true, p.rest[1:i]
			if escaped {
				v.text = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(v.text)
			}
			p.rest = p.rest[i+1:]
			return v, true
		}
	}
	return v, false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isKey(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isToken(c byte) bool {
	return isKey(c) || 'A' <= c && c <= 'Z' || strings.IndexByte("!#$%&'+^`|~:/", c) >= 0
}
