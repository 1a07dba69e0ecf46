package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// tokens are the hashes of those that operators have.
type tokens [][sha256.Size]byte

func newTokens(of map[string]string) (all tokens) {
	for _, token := range of {
		all = append(all, sha256.Sum256([]byte(token)))
	}
	return all
}

// has reports whether a request has one of the tokens: as a bearer, or as a password, which a
// browser asks for. All are compared, each as long as any other.
func (t tokens) has(r *http.Request) bool {
	_, given, ok := r.BasicAuth()
	if !ok {
		scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		given = bearer
	}
	sum := sha256.Sum256([]byte(given))
	found := 0
	for i := range t {
		found |= subtle.ConstantTimeCompare(sum[:], t[i][:])
	}
	return found == 1
}

// knownHost reports whether a request over loopback names this machine. The name of another
// site may lead to loopback, and its pages would be shown the answers.
func knownHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]."))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// ownSite refuses requests that a page of another site makes in an operator's browser.
func ownSite(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
			h.ServeHTTP(w, r)
		default:
			http.Error(w, "the request comes from another site", http.StatusForbidden)
		}
	})
}
