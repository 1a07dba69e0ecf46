// Package browser recognises requests by other sites' pages in a browser that reaches the server.
package browser

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Guard refuses requests unless they pass KnownHost and OwnSite.
func Guard(handler http.Handler) http.Handler {
	handler = OwnSite(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if KnownHost(w, request) {
			handler.ServeHTTP(w, request)
		}
	})
}

// KnownHost reports whether a request over loopback names this machine, and answers it if not.
// Another site's name may resolve to loopback (DNS rebinding), and its pages would get the answers.
func KnownHost(w http.ResponseWriter, request *http.Request) bool {
	local, ok := request.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return true
	}
	host := request.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]."))
	_, err := netip.ParseAddr(host)
	known := err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
	if !known {
		http.Error(w, "this host name is not one of this server's: localhost and addresses are accepted", http.StatusForbidden)
	}
	return known
}

// OwnSite refuses requests by other sites' pages. Browsers without Sec-Fetch-Site have the page's
// site in Origin, unless they only get a page.
func OwnSite(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		site, origin := request.Header.Get("Sec-Fetch-Site"), request.Header.Get("Origin")
		_, host, _ := strings.Cut(origin, "://")
		if site == "none" || site == "same-origin" || site == "" && (origin == "" || host == request.Host) {
			handler.ServeHTTP(w, request)
			return
		}
		http.Error(w, "the request comes from another site", http.StatusForbidden)
	})
}
