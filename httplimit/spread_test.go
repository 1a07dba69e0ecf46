package httplimit

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestSpreadTellsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, policy.Must(policy.Funnel(2, 2, time.Second)))
		told := func(o Options, limits ...AnyLimit) (all []string) {
			if limits == nil {
				limits = []AnyLimit{Limit[netip.Addr]{Limiter: limiter, Key: ByAddr}}
			}
			m, err := NewAll(o, limits...)
			require.NoError(t, err)
			for h := m.Handler(done); len(all) < 6; {
				w := ask(h, from(alice))
				if w.Code == 429 {
					all = append(all, w.Header().Get("Retry-After"))
					assert.Contains(t, w.Header().Get("RateLimit"), ";t="+all[len(all)-1])
				}
			}
			return all
		}
		assert.Equal(t, []string{"1", "1", "1", "1", "1", "1"}, told(Options{}))
		turns := []string{"1", "2", "2", "3", "3", "4"} // a second holds two turns at most
		assert.Equal(t, turns, told(Options{Spread: time.Minute}))
		assert.Equal(t, []string{"1", "2", "2", "3", "3", "3"}, told(Options{Spread: 2 * time.Second}))
		assert.Equal(t, turns, told(Options{Spread: time.Minute, WaitUpTo: time.Millisecond}))

		plenty := open[netip.Addr](t, policy.Must(policy.Funnel(100, 1, time.Second)))
		first, second := Limit[netip.Addr]{Name: "a", Limiter: plenty, Key: ByAddr}, Limit[netip.Addr]{Name: "b", Limiter: limiter, Key: ByAddr}
		assert.Equal(t, turns, told(Options{Spread: time.Minute}, first, second))
		second.PolicyFor = func(*http.Request) policy.Policy { return limiter.Limit() }
		assert.Equal(t, turns, told(Options{Spread: time.Minute}, first, second))
	})
}
