package store_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
)

// A certificate that is not trusted is named, although the client says only that the time was up.
func TestUntrustedCertificateIsNamed(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	o := rueidis.ClientOption{InitAddress: []string{server.Listener.Addr().String()}, TLSConfig: &tls.Config{ServerName: "localhost"}}
	for _, err := range []error{store.WhyRefused(t.Context(), o, io.EOF), store.Connecting(t.Context(), o, context.DeadlineExceeded)} {
		require.ErrorIs(t, err, store.ErrAsking)
		require.ErrorContains(t, err, "certificate")
	}
}
