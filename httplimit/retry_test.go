package httplimit

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/policy"
)

func everyPolicy() map[string]policy.Policy {
	return map[string]policy.Policy{
		"funnel":            policy.Must(policy.Funnel(10, 3, 7*time.Second)),
		"funnel, fast":      policy.Must(policy.Funnel(5, 1000, time.Second)),
		"funnel, slow":      policy.Must(policy.Funnel(3, 1, 5*time.Minute)),
		"funnel, a second":  policy.Must(policy.Funnel(5, 1, time.Second)),
		"fixed window":      policy.Must(policy.FixedWindow(10, time.Minute)),
		"fixed window, odd": policy.Must(policy.FixedWindow(7, 12345678901*time.Nanosecond)),
		"sliding window":    policy.Must(policy.SlidingWindow(10, time.Minute)),
		"at most":           policy.Must(policy.AtMost(10, time.Minute)),
		"queue":             policy.Must(policy.Queue(5, 1, 3*time.Second)),
		"bursty":            policy.Must(policy.Bursty(1, 700*time.Millisecond, 5)),
		"warming up":        policy.Must(policy.WarmingUp(1, 900*time.Millisecond, 10*time.Second, 3)),
	}
}

// Promise: A request succeeds at `Retry-After`, not a second sooner.
func TestRetryAfterIsTrue(t *testing.T) {
	for name, p := range everyPolicy() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := open[netip.Addr](t, p)
				o := Options{Cost: costField}
				if name == "queue" {
					// One client at a time never fills the queue. It is refused for a late turn.
					o.WaitUpTo = time.Second
				}
				retriesAreTrue(t, Must(New(limiter, ByAddr, o)), 60)
			})
		})
	}
}

func costField(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
	return n
}

func retriesAreTrue(t *testing.T, m *Middleware, rounds int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	h := m.Handler(done)
	refused, late := 0, 0
	for range rounds {
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second))))
		}
		r := from("192.0.2.1:1", "Cost", strconv.Itoa(1+random.IntN(3)))
		for w := ask(h, r); w.Code != http.StatusOK; {
			refused++
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			n, err := strconv.Atoi(w.Header().Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, n, "0 invites the client to come back at once")
			if n > 1 {
				time.Sleep(time.Duration(n-1)*time.Second - time.Nanosecond)
				require.Equal(t, http.StatusTooManyRequests, ask(h, r).Code, "it need not have waited %d s", n)
				time.Sleep(time.Nanosecond)
				late++
			}
			time.Sleep(time.Second + whole.Own) // on its way
			w = ask(h, r)
			require.Equal(t, http.StatusOK, w.Code, "it waited the %d s that it was told", n)
		}
	}
	assert.Greater(t, refused, 5, "too few refusals to say anything")
	t.Logf("%d refusals, %d of more than a second", refused, late)
}
