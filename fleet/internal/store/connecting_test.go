package store_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
)

// The client itself only says that the time was up.
func TestUntrustedCertificateIsNamed(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	certified.Close()
	synctest.Test(t, func(t *testing.T) { // a handshake takes no time
		o := rueidis.ClientOption{
			InitAddress: []string{"redis:6379"}, TLSConfig: &tls.Config{ServerName: "localhost"},
			DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, config *tls.Config) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					_ = tls.Server(server, certified.TLS).HandshakeContext(ctx)
				}()
				if config == nil {
					return client, nil
				}
				encrypted := tls.Client(client, config)
				return encrypted, encrypted.HandshakeContext(ctx)
			},
		}
		for _, err := range []error{store.WhyRefused(t.Context(), o, io.EOF), store.Connecting(t.Context(), o, context.DeadlineExceeded)} {
			require.ErrorIs(t, err, store.ErrAsking)
			require.ErrorContains(t, err, "certificate")
		}
	})
}
