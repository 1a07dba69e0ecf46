package httpdoor

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/internal/clientaddr"
)

// proxy names the header fields in which a proxy tells of the request that it asks about, in
// the canonical form of net/http. "" is none.
type proxy struct {
	uri, method, host, address string
	// status answers refusals that a client causes. 0 leaves those of httplimit.
	status int
}

// proxies are those that a configuration names. nginx sends what its configuration says, as
// docs/serving.md has it, and passes on no refusals but 401 and 403.
var proxies = map[string]proxy{
	"nginx":   {"X-Original-Uri", "X-Original-Method", "X-Original-Host", "X-Real-Ip", http.StatusForbidden},
	"caddy":   forwarded,
	"traefik": forwarded,
}

var forwarded = proxy{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-For", 0}

var (
	errPeer  = errors.New("the connection comes from no proxy that is trusted")
	errProxy = errors.New("the proxy does not send what its rules need")
	errURI   = errors.New("the path of the request has a bad escape or climbs above a segment")
)

// original returns the request that the proxy asks about, with its path as cleanPath returns it.
// The error is errPeer, errProxy or errURI.
func (of *Rules) original(r *http.Request) (*http.Request, error) {
	peer := r.RemoteAddr
	if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok {
		peer = of.onSocket
	}
	if !of.trusted.Contains(clientaddr.Parse(peer)) {
		return nil, errPeer
	}
	p := &of.proxy
	uri, err := single(r, p.uri)
	if err != nil {
		return nil, err
	}
	o := r.WithContext(r.Context()) // a copy
	o.Body, o.ContentLength, o.RemoteAddr = http.NoBody, 0, peer
	if o.Method, err = single(r, p.method); err != nil {
		return nil, err
	}
	// Some backends take "post" for POST.
	o.Method = strings.ToUpper(o.Method)
	if o.Host, err = hostOf(r, p.host); err != nil {
		return nil, err
	}
	if p.address != "" && len(r.Header[p.address]) == 0 {
		return nil, fmt.Errorf("%w: there is no field %s", errProxy, p.address)
	}
	clean, query, err := cleanPath(uri)
	if err != nil {
		return nil, err
	}
	o.URL = &url.URL{Path: clean, RawQuery: query}
	return o, nil
}

// single returns the only value of a field. A second one may be the client's.
func single(r *http.Request, field string) (string, error) {
	if field == "" {
		return "", nil
	}
	switch values := r.Header[field]; {
	case len(values) > 1:
		return "", twice(field)
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("%w: there is no field %s", errProxy, field)
	default:
		return values[0], nil
	}
}

func twice(field string) error {
	return fmt.Errorf("%w: there is more than one field %s", errProxy, field)
}

// hostOf returns the host that the field tells of as patterns have it: in lower case, without
// a port and a final dot. A client of HTTP/1.0 need not send one.
func hostOf(r *http.Request, field string) (string, error) {
	values := r.Header[field]
	switch {
	case field == "Host":
		values = []string{r.Host}
	case len(values) > 1:
		return "", twice(field)
	case len(values) == 0:
		return "", nil
	}
	return canonicalHost(values[0]), nil
}

func canonicalHost(host string) string {
	if without, _, err := net.SplitHostPort(host); err == nil {
		host = without
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// cleanPath returns the path of a URI in the one form that rules are matched with, and the
// query. It is decoded once, without parameters such as ;v=1, empty segments, dots and a slash at
// the end. Upper and lower case, other encodings such as %u0041, backslashes and escapes of escapes
// are left as they are: a backend that reads those otherwise needs a wider rule.
//
// A path with .. is an error. Browsers send none, and where it leads depends on the backend:
// some find the handler by what comes before, which may have a stricter rule.
func cleanPath(uri string) (clean, query string, err error) {
	uri, _, _ = strings.Cut(uri, "#")
	uri, query, _ = strings.Cut(uri, "?")
	// A proxy may send the whole URL. "//host" is a path here.
	if scheme, rest, ok := strings.Cut(uri, "://"); ok && !strings.Contains(scheme, "/") {
		_, uri, _ = strings.Cut(rest, "/")
	}
	if strings.Contains(uri, ";") {
		segments := strings.Split(uri, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		uri = strings.Join(segments, "/")
	}
	decoded, err := url.PathUnescape(uri)
	if err != nil || strings.Contains(decoded, "..") && slices.Contains(strings.Split(decoded, "/"), "..") {
		return "", "", errURI
	}
	return path.Clean("/" + decoded), query, nil
}
