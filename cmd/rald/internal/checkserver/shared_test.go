package checkserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/internal/testkit/await"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// In an outage the server is healthy.
func TestChecksOverRedis(t *testing.T) {
	r, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	in, err := families.New(families.Config{Fleet: &families.Fleet{
		Redis: rueidis.ClientOption{InitAddress: []string{r.Addr()}, ForceSingleClient: true},
		Name:  "test", Budget: time.Minute, Servers: 1, Leased: true,
	}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, in.Close()) })
	o, err := openIn(in, parsed(t, `
proxy: caddy
rules:
  - {match: /log, limit: at most 3/365d, name: log, key: address}
  - {match: /window, limit: window, key: address}
  - match: /both
    limits: [{limit: five, key: address}, {limit: window 4/300d aligned, name: aligned, key: address}]
`))
	require.NoError(t, err)
	for path, admitted := range map[string]int{"/log": 3, "/window": 2, "/both": 4} {
		assert.Equal(t, admitted, o.passes(t, http.MethodGet, path), path)
	}
	r.Kill()
	await.True(t, func() bool {
		o.ask(http.MethodGet, "/log")
		for family := range in.All() {
			if family.Health() != nil {
				return true
			}
		}
		return false
	}, "the breaker opens")
	assert.Equal(t, http.StatusOK, o.do(httptest.NewRequest(http.MethodGet, "/healthz", nil)).Code)
}
