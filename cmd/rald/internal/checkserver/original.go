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

// proxy names the header fields of the original request, in net/http's canonical form; "" is none.
type proxy struct {
	uri, method, host, address string
	// status is for refusals that a client causes. 0 leaves httplimit's.
	status int
}

// nginx sends fields as configured in deploy/nginx.conf, and passes on only 401 and 403.
var proxies = map[string]proxy{
	"nginx":   {"X-Original-Uri", "X-Original-Method", "X-Original-Host", "X-Real-Ip", http.StatusForbidden},
	"caddy":   forwarded,
	"traefik": forwarded,
}

var forwarded = proxy{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-For", 0}

var (
	errPeer  = errors.New("the connection comes from no proxy that is trusted")
	errProxy = errors.New("the proxy does not send the fields that its rules need")
	errURI   = errors.New("the path of the request has a bad escape, #, a space or a control character, climbs above a segment, or follows // and no host")
	errRule  = errors.New("the path of the request has ;, %2F, a backslash, %5C or // at its beginning, and its rule depends on their meaning to the backend")
)

// original returns the proxy's original request, with the path in the backend's reading, and the
// paths in other possible readings. The error is errPeer, errProxy or errURI.
func (rules *Rules) original(request *http.Request) (o *http.Request, others []*url.URL, err error) {
	peer := request.RemoteAddr
	if _, ok := request.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok {
		peer = rules.onSocket
	}
	if !rules.trusted.Contains(clientaddr.Parse(peer)) {
		return nil, nil, errPeer
	}
	proxy := &rules.proxy
	uri, err := single(request, proxy.uri)
	if err != nil {
		return nil, nil, err
	}
	// o is a copy.
	o = request.WithContext(request.Context())
	o.Body, o.ContentLength, o.RemoteAddr = http.NoBody, 0, peer
	if o.Method, err = single(request, proxy.method); err != nil {
		return nil, nil, err
	}
	// Some backends take "post" for POST.
	o.Method = strings.ToUpper(o.Method)
	if o.Host, err = hostOf(request, proxy.host); err != nil {
		return nil, nil, err
	}
	if proxy.address != "" && len(request.Header[proxy.address]) == 0 {
		return nil, nil, fmt.Errorf("%w: there is no field %s", errProxy, proxy.address)
	}
	path, query, err := splitURI(uri)
	if err != nil {
		return nil, nil, err
	}
	for i, as := range rules.readings(path) {
		address, err := as.clean(path)
		if err != nil {
			return nil, nil, err
		}
		endWithSlash(address)
		if i > 0 {
			others = append(others, address)
			continue
		}
		address.RawQuery = query
		o.URL = address
	}
	return o, others, nil
}

// single returns a field's only value. A second may be the client's.
func single(request *http.Request, field string) (string, error) {
	if field == "" {
		return "", nil
	}
	switch values := request.Header[field]; {
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

// hostOf returns the host in lower case without port and final dot. HTTP/1.0 may omit it.
func hostOf(request *http.Request, field string) (string, error) {
	values := request.Header[field]
	switch {
	case field == "Host":
		values = []string{request.Host}
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
