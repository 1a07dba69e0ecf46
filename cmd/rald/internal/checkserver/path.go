package checkserver

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// pathReading is a backend's reading of paths as bits. 0 drops parameters (;a=b), takes backslashes
// and escaped slashes for slashes, and reads a host after two leading slashes.
type pathReading uint8

const (
	keepsParameters pathReading = 1 << iota
	keepsSlashes
	keepsBackslashes
	keepsEscapedBackslashes
	mergesSlashes
)

// settings are for text that backends read differently. Without a setting both readings apply.
var settings = []struct {
	// without and with are the values for the zero value and for the bit.
	key, without, with string
	bit                pathReading
	// text is nil for the beginning of the path.
	text []string
}{
	{"parameters", "drop", "keep", keepsParameters, []string{";"}},
	{"escaped_slashes", "decode", "keep", keepsSlashes, []string{"%2f", "%2F"}},
	{"backslashes", "slash", "keep", keepsBackslashes, []string{`\`}},
	{"escaped_backslashes", "decode", "keep", keepsEscapedBackslashes, []string{"%5c", "%5C"}},
	{"leading_slashes", "host", "merge", mergesSlashes, nil},
}

// readings returns the possible readings of a path, as far as they differ. The first finds the key:
// it distinguishes the fewest texts.
func (rules *Rules) readings(path string) (all []pathReading) {
	var differ pathReading
	for _, s := range settings {
		if slices.ContainsFunc(s.text, func(t string) bool { return strings.Contains(path, t) }) {
			differ |= s.bit &^ rules.known
		}
	}
	// After three slashes, some backends read the path from the last slash, and others a host.
	slashes := len(path) - len(strings.TrimLeft(path, `/\`))
	if slashes > 1 && rules.known&mergesSlashes == 0 || slashes > 2 && rules.reading&mergesSlashes == 0 {
		differ |= mergesSlashes
	}
	for some := pathReading(0); ; {
		all = append(all, rules.reading|some)
		// The loop takes each subset of its bits in turn.
		if some = (some - differ) & differ; some == 0 {
			return all
		}
	}
}

// hostText is a host with an optional port, the same for every program.
var hostText = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*)(:[0-9]*)?$`)

// splitURI returns the raw path and the query of a URI, perhaps a whole URL. #, spaces and control
// characters are an error: no client sends them in a path, and some backends drop them.
func splitURI(uri string) (path, query string, err error) {
	path, query, _ = strings.Cut(uri, "?")
	if scheme, rest, ok := strings.Cut(path, ":"); ok && !strings.ContainsAny(scheme, "/\\") {
		var slashes bool
		if path, slashes = strings.CutPrefix(rest, "//"); !slashes {
			return "", "", errURI
		}
		end := strings.IndexByte(path+"/", '/')
		// A proxy may have written the client's host before the path.
		if !hostText.MatchString(path[:end]) || end == len(path) && query != "" {
			return "", "", errURI
		}
		path = path[end:]
	}
	if hasControl(path) || strings.ContainsAny(path, " #") {
		return "", "", errURI
	}
	return path, query, nil
}

// clean returns a path in normal form for the rules: decoded once, without empty segments, dots and
// a final slash. Case, other encodings such as %u0041 and escaped escapes stay: a backend that
// reads those otherwise needs a wider rule.
//
// A path with .. is an error. Browsers send none, and its target depends on the backend: some find
// the handler by the beginning, which may have a stricter rule. A control character is an error also
// if it is escaped, since a pattern that ends in $ matches before a final line end in many languages.
func (as pathReading) clean(path string) (*url.URL, error) {
	if as&keepsBackslashes == 0 {
		path = strings.ReplaceAll(path, "\\", "/")
	}
	if as&mergesSlashes == 0 && strings.HasPrefix(path, "//") {
		path = strings.TrimLeft(path, "/")
		end := strings.IndexByte(path+"/", '/')
		if !hostText.MatchString(path[:end]) {
			return nil, errURI
		}
		path = path[end:]
	}
	var slashes []string
	if as&keepsSlashes == 0 {
		slashes = append(slashes, "%2f", "/", "%2F", "/")
	}
	if as&keepsEscapedBackslashes == 0 {
		slashes = append(slashes, "%5c", "/", "%5C", "/")
	}
	decode := strings.NewReplacer(slashes...)
	var plain, escaped strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if as&keepsParameters == 0 {
			segment, _, _ = strings.Cut(segment, ";")
		}
		for part := range strings.SplitSeq(decode.Replace(segment), "/") {
			part, err := url.PathUnescape(part)
			if err != nil || hasControl(part) || slices.Contains(strings.FieldsFunc(part, isSlash), "..") {
				return nil, errURI
			}
			if part != "" && part != "." {
				plain.WriteString("/" + part)
				escaped.WriteString("/" + url.PathEscape(part))
			}
		}
	}
	if plain.Len() == 0 {
		return &url.URL{Path: "/"}, nil
	}
	return &url.URL{Path: plain.String(), RawPath: escaped.String()}, nil
}

func isSlash(char rune) bool { return char == '/' || char == '\\' }

// hasControl reports whether a text has a control character, U+2028 or U+2029, or a no-break space
// U+00A0. A byte that is no part of UTF-8 is the character of Latin-1: some servers end a path at byte
// 0x85 or 0xa0, and in some languages a pattern that ends in $ matches before U+0085, U+2028 and U+2029.
func hasControl(text string) bool {
	for i, char := range text {
		if char == utf8.RuneError {
			// U+FFFD itself begins with a byte that is no control character.
			char = rune(text[i])
		}
		if char < ' ' || 0x7f <= char && char <= 0xa0 || char == 0x2028 || char == 0x2029 {
			return true
		}
	}
	return false
}

func endWithSlash(address *url.URL) {
	if address.Path != "/" {
		address.Path += "/"
		address.RawPath += "/"
	}
}
