package browser

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only requests pass that no foreign page can make in a browser.
func TestGuardRefusesForeignPages(t *testing.T) {
	ok := Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	loopback, other := &net.TCPAddr{IP: net.IPv6loopback, Port: 8080}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080}
	for _, c := range []struct {
		local              net.Addr
		host, site, origin string
		want               int
	}{
		{loopback, "localhost:8080", "", "", 200},
		{loopback, "LOCALHOST.", "", "", 200},
		{loopback, "rald.localhost:8080", "", "", 200},
		{loopback, "[::1]:8080", "", "", 200},
		{loopback, "127.0.0.1", "", "", 200},
		{loopback, "evil.example:8080", "", "", 403},
		{loopback, "evil.example", "same-origin", "http://evil.example", 403},
		{loopback, "127.0.0.1.evil", "", "", 403},
		{loopback, "", "", "", 403},
		{other, "rald.example", "", "", 200},
		{&net.UnixAddr{Name: "/run/rald.sock", Net: "unix"}, "rald", "", "", 200},
		{loopback, "localhost:8080", "none", "", 200},
		{loopback, "localhost:8080", "same-origin", "http://localhost:8080", 200},
		{loopback, "localhost:8080", "same-site", "http://localhost:3000", 403},
		{loopback, "localhost:8080", "cross-site", "", 403},
		{other, "rald.example", "cross-site", "https://evil.example", 403},
		{loopback, "localhost:8080", "", "http://localhost:8080", 200},
		{loopback, "localhost:8080", "", "http://evil.example", 403},
		{loopback, "localhost:8080", "", "http://localhost:3000", 403},
		{loopback, "localhost:8080", "", "null", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/json", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.local))
		r.Host = c.host
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		ok.ServeHTTP(w, r)
		assert.Equal(t, c.want, w.Code, "%+v", c)
	}
}
