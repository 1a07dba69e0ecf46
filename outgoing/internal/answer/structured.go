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

func (p *parser) take(char byte) bool {
	if p.rest == "" || p.rest[0] != char {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) while(ok func(char byte) bool) (text string) {
	i := 0
	for i < len(p.rest) && ok(p.rest[i]) {
		i++
	}
	text, p.rest = p.rest[:i], p.rest[i:]
	return text
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
	switch char := p.rest[0]; {
	case char == '"':
		return p.quoted()
	case isLower(char) || 'A' <= char && char <= 'Z' || char == '*':
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
func (p *parser) quoted() (value value, ok bool) {
	value.n = -1
	for i, escaped := 1, false; i < len(p.rest); i++ {
		switch char := p.rest[i]; {
		case char < ' ' || char > '~':
			return value, false
		case char == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return value, false
			}
			escaped = true
		case char == '"':
			value.isText, value.text = true, p.rest[1:i]
			if escaped {
				value.text = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(value.text)
			}
			p.rest = p.rest[i+1:]
			return value, true
		}
	}
	return value, false
}

func isDigit(char byte) bool { return '0' <= char && char <= '9' }
func isLower(char byte) bool { return 'a' <= char && char <= 'z' }

func isKey(char byte) bool {
	return isLower(char) || isDigit(char) || strings.IndexByte("_-.*", char) >= 0
}

func isToken(char byte) bool {
	return isKey(char) || 'A' <= char && char <= 'Z' || strings.IndexByte("!#$%&'+^`|~:/", char) >= 0
}
