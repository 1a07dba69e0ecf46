package outgoing

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Promise: Of several told limits the one with the least left binds: calls take 1.1 of the least time.
func TestLongLimitBindsWhenItsRestDoes(t *testing.T) {
	const m, h = time.Minute, time.Hour
	window := func(n int64, w time.Duration) policy.Policy { return policy.Must(policy.FixedWindow(n, w)) }
	bucket := func(n int64, w time.Duration) policy.Policy { return policy.Must(policy.Funnel(n, n, w)) }
	for name, c := range map[string]struct {
		short, long policy.Policy
		during      time.Duration
		// calls is the number of calls that a caller who knows both limits sends in that time.
		calls int
		// ends is the end of the long limit, when answers in any order leave in doubt what is left.
		ends int
	}{
		"window 100/m, 100000/24h":                {window(100, m), window(100000, 24*h), 30 * m, 3000, 0},
		"window 100/m, 1000/h":                    {window(100, m), window(1000, h), 11 * m, 1000, 1},
		"window 100/m, 1000/h, two hours":         {window(100, m), window(1000, h), 2 * h, 2000, 2},
		"window 100/m, 1050/h":                    {window(100, m), window(1050, h), 12 * m, 1050, 1},
		"bucket of 100, 100/m, window 1000/h":     {bucket(100, m), window(1000, h), 10 * m, 1000, 1},
		"bucket of 100, 100/m, bucket of 10000/h": {bucket(100, m), bucket(10000, 24*h), 30 * m, 3100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, all := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					handler := server(t, httplimit.RateLimitHeaders, c.short, c.long)
					if all {
						handler = tellsAll(t, c.short, c.long)
					}
					far := &away{handler: handler, rtt: 20 * time.Millisecond}
					rt := must.Get(NewTransport(newLine(t, Config{}), ByHost, Options{Base: far}))
					crowd(t, c.during, rt)
					t.Logf("all told %v: %d of %d, %d and %d refused", all, len(far.admitted), c.calls, far.refused, far.early)
					assert.GreaterOrEqual(t, float64(len(far.admitted)), float64(c.calls)/1.1)
					assert.LessOrEqual(t, far.refused+far.early, far.sent/100+50*c.ends)
				})
			}
		})
	}
}

// With Config.Reserve calls are spaced by the slowest limit, of which a share is left to others.
func TestReserveOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for reserve, want := range map[float64]string{0: "window 100/m", 0.2: "funnel 3, 800/3750s"} {
			l := newLine(t, Config{Reserve: reserve})
			turnOf(t, l).Obey(FieldsOf(headerOf(`RateLimit-Policy: "a";q=100;w=60, "b";q=1000;w=3600`, `RateLimit: "a";r=99;t=60`), time.Now()))
			assert.Equal(t, want, l.Limit("key").String())
		}
	})
}

// tellsAll returns a handler that tells what is left of each limit. httplimit tells one.
func tellsAll(t *testing.T, policies ...policy.Policy) http.Handler {
	var engines []*engine.Engine[string]
	for _, p := range policies {
		e := must.Get(engine.New[string](engine.Config{Policy: p}))
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		engines = append(engines, e)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if o := engine.TakeAll(engines[0].Claim("all", 1), engines[1].Claim("all", 1)); !o.Allowed {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		for i, e := range engines {
			d, window := e.Peek("all", 0), policies[i].(policy.Windowed).Window()
			w.Header().Add("RateLimit-Policy", fmt.Sprintf(`"%d";q=%d;w=%d`, i, d.Limit, window/time.Second))
			w.Header().Add("RateLimit", fmt.Sprintf(`"%d";r=%d;t=%d`, i, d.Remaining, (d.ResetAfter+time.Second-1)/time.Second))
		}
	})
}
