package httpdoor

import (
	"net/url"
	"slices"
	"strings"
)

// pathReading is how a backend reads a path. The zero value takes ;a=b for a parameter that is no
// part of it, and an escaped slash for a slash.
type pathReading struct{ keepsParameters, keepsSlashes bool }

// kept is what is known of whether backends keep something as text of a segment.
type kept int

const (
	unknown kept = iota
	keeps
	drops
)

// either returns the answers that are possible. matters reports whether a path has what is kept.
func (k kept) either(matters bool) []bool {
	switch {
	case k == keeps:
		return []bool{true}
	case k == unknown && matters:
		return []bool{false, true}
	}
	return []bool{false}
}

// readings returns those that the backends may have of a path, as far as they differ.
func (of *Rules) readings(path string) (all []pathReading) {
	for _, parameters := range of.parameters.either(strings.Contains(path, ";")) {
		for _, slashes := range of.slashes.either(strings.Contains(path, "%2f") || strings.Contains(path, "%2F")) {
			all = append(all, pathReading{parameters, slashes})
		}
	}
	return all
}

// splitURI returns the path of a URI, as it is sent, and the query.
func splitURI(uri string) (path, query string) {
	uri, _, _ = strings.Cut(uri, "#")
	uri, query, _ = strings.Cut(uri, "?")
	// A proxy may send the whole URL. "//host" is a path here.
	if scheme, rest, ok := strings.Cut(uri, "://"); ok && !strings.Contains(scheme, "/") {
		_, uri, _ = strings.Cut(rest, "/")
	}
	return uri, query
}

// clean returns a path in the one form that rules are matched with. It is decoded once, without
// empty segments, dots and a slash at the end. Upper and lower case, other encodings such as
// %u0041, backslashes and escapes of escapes are left as they are: a backend that reads those
// otherwise needs a wider rule.
//
// A path with .. is an error. Browsers send none, and where it leads depends on the backend:
// some find the handler by what comes before, which may have a stricter rule.
func (as pathReading) clean(path string) (*url.URL, error) {
	var plain, escaped strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if !as.keepsParameters {
			segment, _, _ = strings.Cut(segment, ";")
		}
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			return nil, errURI
		}
		parts := strings.Split(decoded, "/")
		if slices.Contains(parts, "..") {
			return nil, errURI
		}
		if as.keepsSlashes {
			parts = []string{decoded}
		}
		for _, part := range parts {
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

// endWithSlash adds the slash at the end with which patterns match: see withSlash.
func endWithSlash(u *url.URL) {
	if u.Path != "/" {
		u.Path += "/"
		u.RawPath += "/"
	}
}
