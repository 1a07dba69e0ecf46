package inspect

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Bounds on what requests may bring, in bytes.
const (
	maxBody  = 128 << 10 // a key of 64 KiB, escaped
	maxQuery = 4 << 10
)

// contentPolicy allows the page its own files and requests to its own server, and no other
// site to frame it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// setHeaders sets the header fields that all answers have.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
}

// refusal returns why a request is refused whatever it asks for, or a status of 0.
func (h *Handler) refusal(r *http.Request, route route) (status int, why string) {
	switch {
	case !h.knownHost(r):
		return http.StatusForbidden, "this host name is not one of this server's: set inspect.Config.Hosts"
	case !route.allows(r.Method):
		return http.StatusMethodNotAllowed, "want " + route.method
	case !sameSite(r, route):
		return http.StatusForbidden, "the request comes from another site"
	case len(r.URL.RawQuery) > maxQuery:
		return http.StatusRequestURITooLong, "the query is too long"
	case route.method != http.MethodPost:
		return 0, ""
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, "want a body of application/json"
	}
	return 0, ""
}

// knownHost reports whether a request names this server. A page of another site whose name
// leads to this server names that.
func (h *Handler) knownHost(r *http.Request) bool {
	host := hostOf(r.Host)
	if _, err := netip.ParseAddr(host); err == nil {
		return true // another site's page that leads here has a name
	}
	if len(h.hosts) > 0 {
		return h.hosts[host]
	}
	listened, own := r.Context().Value(ownServer{}).(string)
	switch {
	case host == "localhost", strings.HasSuffix(host, ".localhost"):
		return true
	case own:
		return listened != "" && host == listened
	}
	return !onLoopback(r)
}

// ownServer is the key of a context in which a request to the handler's own server has the
// host name that it listens on, "" if that is not known.
type ownServer struct{}

// listener knows the host name that it was made for.
type listener struct {
	net.Listener
	host string
}

// ofOwnServer returns the context of the requests that come by a listener.
func ofOwnServer(l net.Listener) context.Context {
	of, _ := l.(listener)
	return context.WithValue(context.Background(), ownServer{}, of.host)
}

// hostOf returns the host of an authority in lower case, without its port, brackets and a
// final dot.
func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		authority = host
	}
	authority = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]")
	return strings.ToLower(strings.TrimSuffix(authority, "."))
}

// onLoopback reports whether a request came over a loopback address of the server.
func onLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// sameSite reports whether a request comes from the page itself, from a program, or is an
// operator's way to the page.
func sameSite(r *http.Request, route route) bool {
	if route.method == http.MethodPost {
		return crossOrigin.Check(r) == nil
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	// A link to the page shows the operator what is there, and tells the other site nothing.
	return route.page && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// crossOrigin holds requests that are not GET to the origin that they go to.
var crossOrigin = http.NewCrossOriginProtection()

// operator returns whose token a request has, and "" if it has none of the handler's. All
// tokens are compared, each as long as any other.
func (h *Handler) operator(r *http.Request) (name string) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	found := 0
	for i := range h.tokens {
		found |= subtle.ConstantTimeCompare(sum[:], h.tokens[i].sum[:]) * (i + 1)
	}
	if found == 0 || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return h.tokens[found-1].operator
}
