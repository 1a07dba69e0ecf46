package httplimit

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Decisions about an unrecorded key are guesses, under one limit or several of any kind.
func TestUnrecordedKeyIsNotTold(t *testing.T) {
	bobKey := netip.MustParseAddr("192.0.2.2")
	hour := func(n int64) policy.Policy { return policy.Must(policy.FixedWindow(n, time.Hour)) }
	for _, when := range []engine.WhenFull{engine.RefuseNew, engine.AdmitNew} {
		for _, wait := range []time.Duration{0, time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				config := engine.Config{Policy: hour(10), MaxKeys: 1, WhenFull: when, Idle: 24 * time.Hour}
				full, err := engine.New[netip.Addr](config)
				require.NoError(t, err)
				defer full.Close()
				tiers, err := engine.NewTiered[netip.Addr](config, hour(9))
				require.NoError(t, err)
				defer tiers.Close()
				wide, narrow := open[netip.Addr](t, hour(1000)), open[netip.Addr](t, hour(1))
				full.Choke(bobKey)
				tiers.Choke(bobKey)
				synctest.Wait()
				limit := func(name string, l limits.Limiter[netip.Addr]) AnyLimit {
					return Limit[netip.Addr]{Name: name, Limiter: l, Key: ByAddr}
				}
				var last limits.Verdict
				o := Options{WaitUpTo: wait, OnVerdict: func(_ *http.Request, v limits.Verdict) { last = v }}
				for name, all := range map[string][]AnyLimit{
					"an engine":               {limit("full", full)},
					"tiers":                   {limit("full", tiers)},
					"engines":                 {limit("full", full), limit("wide", wide)},
					"tiers and an engine":     {limit("full", tiers), limit("wide", wide)},
					"limiters of other kinds": {limit("wide", elsewhere{wide}), limit("full", full)},
				} {
					m := Must(NewAll(o, all...))
					w := ask(m.Handler(done), from(alice))
					assert.Equal(t, when == engine.RefuseNew, w.Code == 429, name)
					assert.Empty(t, w.Header().Get("Retry-After"), name)
					assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"full";q=`, name)
					if w.Code == 429 || len(all) == 1 {
						assert.Empty(t, w.Header().Get("RateLimit"), name)
						assert.False(t, last.Provenance.Exact(), name)
						assert.Equal(t, limits.SourceUnrecorded, last.Provenance.Source(), name)
					}
					w = ask(m.Handler(done), from(bob))
					assert.Equal(t, 200, w.Code, name)
					assert.NotEmpty(t, w.Header().Get("RateLimit"), "a key that is recorded is told: %s", name)
				}
				if when == engine.AdmitNew {
					return
				}
				// Engines are looked at before any is asked to record, so the refusing engines tell
				// the truth. Otherwise it is a guess.
				narrow.Take(aliceKey, 1)
				for other, retry := range map[limits.Limiter[netip.Addr]]string{narrow: "3600", near{narrow}: ""} {
					w := ask(Must(NewAll(o, limit("full", full), limit("narrow", other))).Handler(done), from(alice))
					assert.Equal(t, 429, w.Code)
					assert.Equal(t, retry, w.Header().Get("Retry-After"))
					assert.Equal(t, retry == "", w.Header().Get("RateLimit") == "")
				}
			})
		}
	}
}

type near struct{ limits.Limiter[netip.Addr] }
