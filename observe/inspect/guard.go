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

const (
	// A key of 64 KiB fits, escaped.
	maxBody  = 128 << 10
	maxQuery = 4 << 10
)

// contentPolicy allows the page its own files and requests to its own server, and no framing.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", contentPolicy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cache-Control", "no-store")
}

// refusal returns why a request of any kind is refused, or a status of 0.
func (h *Handler) refusal(request *http.Request, route route) (status int, why string) {
	kind, _, err := mime.ParseMediaType(request.Header.Get("Content-Type"))
	switch {
	case !h.knownHost(request):
		return http.StatusForbidden, "this host name is not one of this server's: the program lists them as Hosts"
	case !route.allows(request.Method):
		return http.StatusMethodNotAllowed, "want " + route.method
	case !sameSite(request, route):
		return http.StatusForbidden, "the request comes from another site"
	case len(request.URL.RawQuery) > maxQuery:
		return http.StatusRequestURITooLong, "the query is too long"
	case route.method == http.MethodPost && (err != nil || kind != "application/json"):
		return http.StatusUnsupportedMediaType, "want a body of application/json"
	}
	return 0, ""
}

// knownHost reports whether a request names this server. A foreign host name that resolves to this
// server (DNS rebinding) is not known.
func (h *Handler) knownHost(request *http.Request) bool {
	host := hostOf(request.Host)
	if _, err := netip.ParseAddr(host); err == nil {
		// A page of another site has a host name, not an address.
		return true
	}
	if len(h.hosts) > 0 {
		return h.hosts[host]
	}
	listened, own := request.Context().Value(ownServer{}).(string)
	switch {
	case host == "localhost", strings.HasSuffix(host, ".localhost"):
		return true
	case own:
		return listened != "" && host == listened
	}
	return !onLoopback(request)
}

// ownServer is the context key for the host that the handler's own server listens on, or "".
type ownServer struct{}

type listener struct {
	net.Listener
	host string
}

func ofOwnServer(l net.Listener) context.Context {
	of, _ := l.(listener)
	return context.WithValue(context.Background(), ownServer{}, of.host)
}

// hostOf returns the host of an authority in lower case, without port, brackets and a final dot.
func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		authority = host
	}
	authority = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]")
	return strings.ToLower(strings.TrimSuffix(authority, "."))
}

func onLoopback(request *http.Request) bool {
	addr, ok := request.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// sameSite reports whether a request comes from the page itself, a program, or an operator's visit.
func sameSite(request *http.Request, route route) bool {
	if route.method == http.MethodPost {
		return crossOrigin.Check(request) == nil
	}
	switch request.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	// A link to the page shows it to the operator, and tells the other site nothing.
	return route.page && request.Header.Get("Sec-Fetch-Mode") == "navigate" && request.Header.Get("Sec-Fetch-Dest") == "document"
}

// crossOrigin checks that requests other than GET come from their own origin.
var crossOrigin = http.NewCrossOriginProtection()

// operator returns the operator of a request's token, or "". Comparison takes constant time.
func (h *Handler) operator(request *http.Request) (name string) {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
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
