package answer

import (
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
	if !ok || v.kind != isText {
		return it, false
	}
	it.name = v.text
	for p.take(';') {
		p.skip(" ")
		if p.rest == "" || !isLower(p.rest[0]) && p.rest[0] != '*' {
			return it, false
		}
		key, v := p.while(isKey), value{}
		if p.take('=') {
			if v, ok = p.value(); !ok {
				return it, false
			}
		}
		number := int64(-1)
		if v.kind == isInteger && v.n >= 0 {
			number = v.n
		}
		// The last of equal parameters counts.
		switch key {
		case "q":
			it.q = number
		case "w":
			it.w = number
		case "r":
			it.r = number
		case "t":
			it.t = number
		case "a":
			it.a = number
		case "qu":
			if it.unit = v.text; v.kind != isText {
				it.unit = "unknown"
			}
		}
	}
	return it, true
}

type kind int

const (
	// An isOther is a decimal, a boolean, bytes, a date or a display string.
	isOther kind = iota
	// An isText is a string or a token.
	isText
	isInteger
)

type value struct {
	kind kind
	text string
	n    int64
}

func (p *parser) value() (v value, ok bool) {
	if p.rest == "" {
		return v, false
	}
	switch c := p.rest[0]; {
	case c == '"':
		return p.quoted()
	case c == '-' || isDigit(c):
		return p.numeral()
	case isLower(c) || 'A' <= c && c <= 'Z' || c == '*':
		return value{kind: isText, text: p.while(isToken)}, true
	case c == '?':
		p.take('?')
		return v, p.take('0') || p.take('1')
	case c == ':':
		p.take(':')
		p.while(isBase64)
		p.skip("=")
		return v, p.take(':')
	case c == '@':
		p.take('@')
		v, ok = p.numeral()
		return value{}, ok && v.kind == isInteger
	case c == '%':
		p.take('%')
		return v, p.display()
	}
	return v, false
}

// numeral parses an integer of up to 15 digits, or a decimal of up to 12 and 3.
func (p *parser) numeral() (v value, ok bool) {
	negative := p.take('-')
	digits := p.while(isDigit)
	if p.take('.') {
		fraction := p.while(isDigit)
		return v, 0 < len(digits) && len(digits) <= 12 && 0 < len(fraction) && len(fraction) <= 3
	}
	if len(digits) == 0 || len(digits) > 15 {
		return v, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if negative {
		n = -n
	}
	return value{kind: isInteger, n: n}, err == nil
}

// quoted parses a string of printable ASCII.
func (p *parser) quoted() (v value, ok bool) {
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
			v = value{kind: isText, text: p.rest[1:i]}
			if escaped {
				v.text = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(v.text)
			}
			p.rest = p.rest[i+1:]
			return v, true
		}
	}
	return v, false
}

// display parses a display string in UTF-8, with bytes other than printable ASCII, % and "
// written as % and two lower-case hexadecimal digits.
func (p *parser) display() (ok bool) {
	if !p.take('"') {
		return false
	}
	var text []byte
	for p.rest != "" {
		c := p.rest[0]
		switch p.rest = p.rest[1:]; {
		case c == '"':
			return utf8.Valid(text)
		case c < ' ' || c > '~':
			return false
		case c == '%':
			if len(p.rest) < 2 || strings.ToLower(p.rest[:2]) != p.rest[:2] {
				return false
			}
			n, err := strconv.ParseUint(p.rest[:2], 16, 8)
			if err != nil {
				return false
			}
			c, p.rest = byte(n), p.rest[2:]
		}
		text = append(text, c)
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isKey(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isToken(c byte) bool {
	return isKey(c) || 'A' <= c && c <= 'Z' || strings.IndexByte("!#$%&'+^`|~:/", c) >= 0
}

func isBase64(c byte) bool {
	return isDigit(c) || isLower(c) || 'A' <= c && c <= 'Z' || c == '+' || c == '/'
}
