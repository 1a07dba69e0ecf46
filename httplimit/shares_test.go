package httplimit

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Over HTTP a tenant's responses tell of its guarantee, and of its own loans, whatever others use.
//
// Promise: `httplimit` takes `engine.Shares`, and tells no tenant a figure of others.
func TestSharesOverHTTP(t *testing.T) {
	var clock atomic.Int64
	clock.Store(int64(time.Hour))
	guarantee := policy.Must(policy.Funnel(10, 1, time.Second))
	shares := must.Get(engine.NewShares(engine.SharesConfig[string]{
		Config:  engine.Config{Clock: func() policy.Instant { return policy.Instant(clock.Load()) }},
		Total:   policy.Must(policy.Funnel(50, 10, time.Second)),
		Tenants: []string{"a", "b"},
		Guarantee: func(tenant string) policy.Policy {
			if tenant == "stranger" {
				return nil
			}
			return guarantee
		},
	}))
	defer shares.Close()
	m := must.Get(New(shares, ByHeader("Tenant"), Options{}))
	server := serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})), false)
	ask := func(tenant string) (status int, limit, retry string) {
		t.Helper()
		r := must.Get(http.NewRequest(http.MethodGet, server.URL, nil))
		r.Header.Set("Tenant", tenant)
		response := must.Get(server.Client().Do(r))
		_ = response.Body.Close()
		return response.StatusCode, response.Header.Get("RateLimit"), response.Header.Get("Retry-After")
	}
	want := func(tenant string, status int, limit, retry string) {
		t.Helper()
		gotStatus, gotLimit, gotRetry := ask(tenant)
		assert.Equal(t, []any{status, limit, retry}, []any{gotStatus, gotLimit, gotRetry}, tenant)
	}
	want("a", http.StatusOK, `"default";r=9;t=1`, "")
	for range 9 {
		ask("a")
	}
	want("a", http.StatusOK, `"default";r=0;t=10`, "") // borrowed
	borrowed := 1
	for {
		status, limit, retry := ask("stranger")
		if status != http.StatusOK {
			// A loan of the group, which says nothing of those who have borrowed.
			assert.Equal(t, []any{http.StatusTooManyRequests, `"default";r=0;t=1`, "1"}, []any{status, limit, retry})
			break
		}
		borrowed++
	}
	assert.Equal(t, 20, borrowed, "30 at most in the group, of which 10 are guaranteed units")
	for i := range 10 {
		status, _, _ := ask("b")
		assert.Equal(t, http.StatusOK, status, "the guarantee's unit %d", i)
	}
	// b could borrow after 1.1 s, and its guarantee has a unit after 1 s.
	want("b", http.StatusTooManyRequests, `"default";r=0;t=1`, "1")
	clock.Add(int64(time.Second))
	want("b", http.StatusOK, `"default";r=0;t=10`, "")
	want("stranger", http.StatusTooManyRequests, `"default";r=0;t=1`, "1")
	st := shares.Stats()
	assert.EqualValues(t, []uint64{21, 20}, []uint64{st.Guaranteed, st.Borrowed})
	assert.EqualValues(t, 3, st.Refused)
}
