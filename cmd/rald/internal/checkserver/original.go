package checkserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
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
	errURI   = errors.New("the path of the request has a bad escape, #, a space or a control character, climbs above a segment, or follows // and no host")
	errRule  = errors.New("the path of the request has ;, %2F, a backslash, %5C or // at its beginning, and its rule depends on what they mean to the backend")
)

// original returns the request that the proxy asks about, with its path as a backend reads it,
// and the other ways in which backends may. The error is errPeer, errProxy or errURI.
func (of *Rules) original(r *http.Request) (o *http.Request, others []*url.URL, err error) {
	peer := r.RemoteAddr
	if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok {
		peer = of.onSocket
	}
	if !of.trusted.Contains(clientaddr.Parse(peer)) {
		return nil, nil, errPeer
	}
	p := &of.proxy
	uri, err := single(r, p.uri)
	if err != nil {
		return nil, nil, err
	}
	o = r.WithContext(r.Context()) // a copy
	o.Body, o.ContentLength, o.RemoteAddr = http.NoBody, 0, peer
	if o.Method, err = single(r, p.method); err != nil {
		return nil, nil, err
	}
	// Some backends take "post" for POST.
	o.Method = strings.ToUpper(o.Method)
	if o.Host, err = hostOf(r, p.host); err != nil {
		return nil, nil, err
	}
	if p.address != "" && len(r.Header[p.address]) == 0 {
		return nil, nil, fmt.Errorf("%w: there is no field %s", errProxy, p.address)
	}
	path, query, err := splitURI(uri)
	if err != nil {
		return nil, nil, err
	}
	for i, as := range of.readings(path) {
		u, err := as.clean(path)
		if err != nil {
			return nil, nil, err
		}
		endWithSlash(u)
		if i > 0 {
			others = append(others, u)
			continue
		}
		u.RawQuery = query
		o.URL = u
	}
	return o, others, nil
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
