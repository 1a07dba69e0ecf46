package checkserver

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// pathReading is how a backend reads a path: a set of the bits below. In the zero value ;a=b is a
// parameter that is no part of the path, backslashes and escaped slashes are slashes, and a host
// follows two slashes at the beginning.
type pathReading uint8

const (
	keepsParameters pathReading = 1 << iota
	keepsSlashes
	keepsBackslashes
	keepsEscapedBackslashes
	mergesSlashes
)

// settings say how backends read text that they read differently. Without its setting a path with
// such text is matched in both readings.
var settings = []struct {
	key, without, with string // the values that mean the zero value and the bit
	bit                pathReading
	text               []string // nil for what begins the path
}{
	{"parameters", "drop", "keep", keepsParameters, []string{";"}},
	{"escaped_slashes", "decode", "keep", keepsSlashes, []string{"%2f", "%2F"}},
	{"backslashes", "slash", "keep", keepsBackslashes, []string{`\`}},
	{"escaped_backslashes", "decode", "keep", keepsEscapedBackslashes, []string{"%5c", "%5C"}},
	{"leading_slashes", "host", "merge", mergesSlashes, nil},
}

// readings returns those that the backends may have of a path, as far as they differ. The first
// finds the key: it tells fewest texts apart.
func (of *Rules) readings(path string) (all []pathReading) {
	var differ pathReading
	for _, s := range settings {
		if slices.ContainsFunc(s.text, func(t string) bool { return strings.Contains(path, t) }) {
			differ |= s.bit &^ of.known
		}
	}
	// Of three slashes some backends that look for a host take the last for the beginning of the
	// path, and some for one more slash before the host.
	slashes := len(path) - len(strings.TrimLeft(path, `/\`))
	if slashes > 1 && of.known&mergesSlashes == 0 || slashes > 2 && of.reading&mergesSlashes == 0 {
		differ |= mergesSlashes
	}
	for some := pathReading(0); ; {
		all = append(all, of.reading|some)
		if some = (some - differ) & differ; some == 0 { // each subset of its bits in turn
			return all
		}
	}
}

// hostText is a host, with or without a port, as every program reads it.
var hostText = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*)(:[0-9]*)?$`)

// splitURI returns the path of a URI, as it is sent, and the query. A proxy may send the whole
// URL. Text that no client sends in a path, and that some backends drop or begin a fragment with,
// is an error: # and spaces and control characters.
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
	if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '#' }) {
		return "", "", errURI
	}
	return path, query, nil
}

// clean returns a path in the one form that rules are matched with. It is decoded once, without
// empty segments, dots and a slash at the end. Upper and lower case, other encodings such as
// %u0041 and escapes of escapes are left as they are: a backend that reads those otherwise needs
// a wider rule.
//
// A path with .. is an error. Browsers send none, and where it leads depends on the backend:
// some find the handler by what comes before, which may have a stricter rule.
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
			if err != nil || slices.Contains(strings.FieldsFunc(part, isSlash), "..") {
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

func isSlash(c rune) bool { return c == '/' || c == '\\' }

// endWithSlash adds the slash at the end with which patterns match: see withSlash.
func endWithSlash(u *url.URL) {
	if u.Path != "/" {
		u.Path += "/"
		u.RawPath += "/"
	}
}
