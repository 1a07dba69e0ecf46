package clientaddr

import (
	"math"
	"net/http"
	"net/netip"
	"strings"
)

// The functions below read header fields from the right, and no further than they must. The
// client's own part stands to the left of the proxies' additions, and may be anything.

// lastOf cuts the last element off a comma-separated list. more reports whether others are left.
func lastOf(list string) (rest, last string, more bool) {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], Trim(list[i+1:]), true
	}
	return "", Trim(list), false
}

// lastForwarded is lastOf for lists with commas in quoted-strings. Read from the right, a string
// ends at a quote and begins at the next quote without a backslash: an opening quote follows an
// equals sign. From a malformed list it cuts an element that is malformed too, or was added to the
// right of the malformed part.
func lastForwarded(list string) (rest, last string, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && (!quoted || i == 0 || list[i-1] != '\\'):
			quoted = !quoted
		case list[i] == ',' && !quoted:
			return list[:i], Trim(list[i+1:]), true
		}
	}
	return "", Trim(list), false
}

// Trim removes optional white space (RFC 9110, section 5.6.3) from both ends.
func Trim(text string) string { return strings.Trim(text, " \t") }

// maxElement is longer than any element of a Forwarded field that a proxy writes.
const maxElement = 4096

// maxNode is longer than any well-formed address with its port, even with every byte escaped.
const maxNode = 256

// nodeOf returns the parameter "for" of a forwarded-element (RFC 7239, section 4). The result is ""
// if the element is malformed, has no "for" or two, or is longer than maxElement.
func nodeOf(element string) (node string) {
	if len(element) > maxElement {
		return ""
	}
	for element != "" {
		// Parameters may be empty.
		if element[0] == ';' {
			element = element[1:]
			continue
		}
		name, rest, ok := strings.Cut(element, "=")
		if !ok || !IsToken(name) {
			return ""
		}
		var value string
		if value, rest, ok = valueOf(rest); !ok {
			return ""
		}
		if strings.EqualFold(name, "for") {
			if node != "" || value == "" {
				return ""
			}
			node = value
		}
		if rest != "" && rest[0] != ';' {
			return ""
		}
		element = rest
	}
	return node
}

// valueOf cuts a token or a quoted-string off the front of s, and unquotes it.
func valueOf(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		end := 0
		for end < len(s) && tokenBytes[s[end]] {
			end++
		}
		return s[:end], s[end:], end > 0
	}
	pairs := false
	for i := 1; i < len(s); i++ {
		switch char := s[i]; {
		case char == '"':
			if value = s[1:i]; pairs {
				value = unescape(value)
			}
			return value, s[i+1:], true
		case char == '\\':
			i++
			pairs = true
			if i == len(s) || !isQuotable(s[i]) {
				return "", "", false
			}
		case !isQuotable(char):
			return "", "", false
		}
	}
	return "", "", false
}

// unescape removes the backslashes of quoted-pairs, up to maxNode bytes of the result.
func unescape(text string) string {
	plain := make([]byte, 0, min(len(text), maxNode+1))
	for i := 0; i < len(text) && len(plain) < cap(plain); i++ {
		if text[i] == '\\' {
			i++
		}
		plain = append(plain, text[i])
	}
	return string(plain)
}

func isQuotable(char byte) bool { return char == '\t' || char >= ' ' && char != 0x7f }

// IsToken reports whether s is a token (RFC 9110, section 5.6.2), as a field name is.
func IsToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// IsFree reports whether a program may set the field of that name: HTTP itself needs it for nothing.
func IsFree(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return false
	}
	return IsToken(name)
}

var tokenBytes = func() (table [256]bool) {
	for c := range table {
		table[c] = isAlphanumeric(byte(c)) || strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return table
}()

func isAlphanumeric(char byte) bool {
	return '0' <= char && char <= '9' || 'a' <= char && char <= 'z' || 'A' <= char && char <= 'Z'
}

// Parse parses a proxy's address, with or without a port. IPv6 may be in brackets, and must with a
// port. The result is unmapped and without a zone, or the zero Addr. 0.0.0.0 and :: are no address.
func Parse(text string) netip.Addr {
	addr, ok := plainIPv4(text)
	if !ok {
		addr = anyAddr(text)
	}
	if addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// plainIPv4 is Parse for IPv4 with or without a numeric port, in half the time of anyAddr.
func plainIPv4(text string) (addr netip.Addr, ok bool) {
	var bytes [4]byte
	index, octet, digits := 0, uint(0), 0
	for i := range len(text) {
		char := text[i]
		switch {
		case '0' <= char && char <= '9':
			// Some programs read a leading zero as octal.
			if digits > 0 && octet == 0 {
				return netip.Addr{}, false
			}
			octet = octet*10 + uint(char-'0')
			if digits++; octet > 255 {
				return netip.Addr{}, false
			}
		case digits == 0:
			return netip.Addr{}, false
		case char == '.' && index < 3:
			bytes[index] = byte(octet)
			index, octet, digits = index+1, 0, 0
		case char == ':' && index == 3:
			bytes[3] = byte(octet)
			return netip.AddrFrom4(bytes), isNumber(text[i+1:])
		default:
			return netip.Addr{}, false
		}
	}
	bytes[index] = byte(octet)
	return netip.AddrFrom4(bytes), index == 3 && digits > 0
}

// isNumber reports whether s is a decimal number of at most five digits that fits 16 bits.
func isNumber(s string) bool {
	if s == "" || len(s) > len("65535") {
		return false
	}
	n := uint(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + uint(s[i]-'0')
	}
	return n <= math.MaxUint16
}

func anyAddr(text string) netip.Addr {
	if text == "" || len(text) > maxNode {
		return netip.Addr{}
	}
	bracketed := text[0] == '['
	if bracketed {
		host, port, ok := strings.Cut(text[1:], "]")
		if !ok || port != "" && !isPort(port) {
			return netip.Addr{}
		}
		text = host
	} else if i := strings.IndexByte(text, ':'); i >= 0 && strings.IndexByte(text[i+1:], ':') < 0 {
		if !isPort(text[i:]) {
			return netip.Addr{}
		}
		text = text[:i]
	}
	// A zone names an interface of the proxy. Parsing would intern it.
	host, zone, zoned := strings.Cut(text, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is4() && (bracketed || zoned) || zoned && zone == "" {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// isPort reports whether s is a colon and a port, or an obfuscated port (RFC 7239, section 6.3).
func isPort(s string) bool {
	if len(s) < 2 || s[0] != ':' {
		return false
	}
	if s[1] == '_' {
		for _, char := range []byte(s[2:]) {
			if !isAlphanumeric(char) && char != '.' && char != '_' && char != '-' {
				return false
			}
		}
		return len(s) > 2
	}
	return isNumber(s[1:])
}
