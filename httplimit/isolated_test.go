package httplimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// breaks is a limiter that panics or fails in a method.
type breaks struct {
	limits.Limiter[netip.Addr]
	hold, settle func() error
}

func (b breaks) Hold(ctx context.Context, call limits.Call[netip.Addr]) (limits.Grant, error) {
	if b.hold != nil {
		return limits.Grant{}, b.hold()
	}
	g, err := b.Limiter.Hold(ctx, call)
	g.Held.Of = b
	return g, err
}

func (b breaks) Settle(context.Context, limits.Held, int64) error { return b.settle() }

// The other limits decide, charge and tell clients as without it. Failures are counted, and logged
// once.
func TestShadowThatFailsChangesNothing(t *testing.T) {
	boom := func() error { panic("boom") }
	fails := func() error { return errors.New("boom") }
	for name, breakIt := range map[string]func(l *Limit[netip.Addr]){
		"Key":               func(l *Limit[netip.Addr]) { l.Key = func(*http.Request) netip.Addr { panic("boom") } },
		"Cost":              func(l *Limit[netip.Addr]) { l.Cost = func(*http.Request) int64 { panic("boom") } },
		"Cost below 0":      func(l *Limit[netip.Addr]) { l.Cost = func(*http.Request) int64 { return -1 } },
		"Charge":            func(l *Limit[netip.Addr]) { l.Charge = func(*http.Request, Served) int64 { panic("boom") } },
		"PolicyFor":         func(l *Limit[netip.Addr]) { l.PolicyFor = func(*http.Request) policy.Policy { panic("boom") } },
		"the limiter":       func(l *Limit[netip.Addr]) { l.Limiter = breaks{l.Limiter, boom, nil} },
		"an error":          func(l *Limit[netip.Addr]) { l.Limiter = breaks{l.Limiter, fails, nil} },
		"settling":          func(l *Limit[netip.Addr]) { l.Limiter = breaks{l.Limiter, nil, boom} },
		"an error settling": func(l *Limit[netip.Addr]) { l.Limiter = breaks{l.Limiter, nil, fails} },
	} {
		for _, mixed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var log bytes.Buffer
				live := hourly(t, 40)
				tried := Limit[netip.Addr]{Name: "tried", Limiter: hourly(t, 1000), Key: ByAddr, Shadow: true}
				breakIt(&tried)
				var enforced limits.Limiter[netip.Addr] = live
				if mixed {
					enforced = elsewhere{live}
				}
				m := Must(NewAll(Options{
					Cost: func(*http.Request) int64 { return 20 }, Charge: func(*http.Request, Served) int64 { return 10 },
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
				}, tried, Limit[netip.Addr]{Name: "live", Limiter: enforced, Key: ByAddr}))
				for i, code := range []int{200, 200, 200, 429, 429} {
					w := ask(m.Handler(done), from(alice))
					assert.Equal(t, code, w.Code, i)
					assert.Equal(t, `"live";q=40;w=3600`, w.Header().Get("RateLimit-Policy"))
				}
				assert.Equal(t, int64(10), live.Peek(aliceKey, 0).Remaining, "3 requests are charged 10 each")
				s := m.Stats()
				assert.Equal(t, []uint64{3, 2, 0}, []uint64{s.Admitted, s.OverLimit, s.Unsettled})
				assert.Equal(t, map[string]uint64{"tried": 0}, s.Shadowed)
				assert.Equal(t, map[string]uint64{"tried": 3}, s.ShadowFailed)
				assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
				assert.Contains(t, log.String(), "limit=tried")
			})
		}
	}
}
