package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// cannotRecord are the ways to answer without a key's word, and whether the engine then admits.
var cannotRecord = map[string]struct {
	config Config
	closes bool
	key    float64
	admits bool
}{
	"a full table refuses":        {config: Config{MaxKeys: 1, WhenFull: RefuseNew}, key: 2},
	"a full table admits":         {config: Config{MaxKeys: 1, WhenFull: AdmitNew}, key: 2, admits: true},
	"a closed engine refuses":     {config: Config{WhenUnavailable: Refuse}, closes: true, key: 1},
	"a closed engine admits":      {closes: true, key: 1, admits: true},
	"a key that cannot be found":  {config: Config{WhenUnavailable: Refuse}, key: math.NaN()},
	"such a key that is admitted": {key: math.NaN(), admits: true},
}

// From an engine, several, or a Tiered, at once or patiently. An answer on another key that has a
// word says so too.
//
// Promise: Answers without the key's word say so.
func TestAnswersWithoutWordSaySo(t *testing.T) {
	for name, c := range cannotRecord {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.config.Policy = funnel(100, 1, time.Hour)
				without := open[float64](t, c.config)
				with := open[string](t, Config{Policy: funnel(100, 1, time.Hour)})
				tiers := openTiered[float64](t, c.config, funnel(50, 1, time.Hour))
				with.Choke("known")
				without.Choke(1)
				tiers.Choke(1)
				synctest.Wait()
				if c.closes {
					require.NoError(t, without.Close())
					require.NoError(t, tiers.Engines()[1].Close())
				}
				check := func(way string, a limits.Answer, err error) {
					t.Helper()
					require.NoError(t, err, way)
					assert.Equal(t, c.admits, a.Allowed, way)
					assert.Equal(t, limits.SourceUnrecorded, a.Source(), way)
					assert.False(t, a.Exact(), way)
				}
				for _, l := range []limits.Limiter[float64]{without, tiers} {
					a, err := l.Admit(t.Context(), c.key, 1)
					check("Admit", a, err)
					for _, patience := range []time.Duration{0, time.Millisecond} {
						g, err := l.Hold(t.Context(), limits.Call[float64]{Key: c.key, N: 1, Patience: patience})
						check("Hold", g.Answer, err)
						out, err := limits.AskAll(t.Context(), patience,
							limits.NewClaim(l, limits.Call[float64]{Key: c.key, N: 1}), limits.NewClaim(with, limits.Call[string]{Key: "known", N: 1}))
						check("AskAll", out.Answers[0], err)
						assert.True(t, out.Answers[1].Exact())
					}
				}
				x, y, z := without.Explain(c.key), tiers.Explain(c.key), ExplainClaims(without.Claim(c.key, 1))
				d, tier := without.Take(c.key, 1), tiers.Take(c.key, 1)
				assert.Equal(t, []any{d.Allowed, d.RetryAfter}, []any{x.Allowed, x.RetryAfter})
				assert.Equal(t, []any{tier.Allowed, tier.RetryAfter}, []any{y.Allowed, y.RetryAfter})
				assert.Equal(t, []any{d.Allowed, d.RetryAfter, false}, []any{z.Allowed, z.RetryAfter, z.Known})
				for _, x := range []limits.Explanation{x, y, z} {
					assert.Equal(t, []any{limits.SourceUnrecorded, false}, []any{x.Source(), x.Exact()})
					assert.Contains(t, x.String(), "A call cannot be recorded: the ")
				}
				too := ExplainClaims(without.Claim(c.key, 101))
				assert.Equal(t, []any{policy.Never, limits.SourceProcess}, []any{too.RetryAfter, too.Source()}, "that is the limit's answer")
				assert.True(t, ExplainClaims(without.Claim(c.key, 0)).Allowed, "and a look records nothing")
				before, began := without.Stats(), time.Now()
				reserved, larger := without.Reserve(c.key, 100, time.Hour), funnel(200, 1, time.Hour)
				reserved.Cancel()
				assert.Equal(t, c.admits, reserved.Allowed)
				assert.Equal(t, c.admits, without.TakeWith(larger, c.key, 200).Allowed)
				for _, never := range []policy.Decision{
					without.Reserve(c.key, 101, time.Hour).Decision,
					without.TakeWith(larger, c.key, 201), without.TakeWith(pacer{1, 1}, c.key, 1),
				} {
					assert.Equal(t, policy.Never, never.RetryAfter)
				}
				after := without.Stats()
				assert.Equal(t, before.Unavailable+before.Full+2, after.Unavailable+after.Full)
				assert.Equal(t, began, time.Now(), "a call has waited")
				acquire := func(claims ...Claim) Outcome {
					out, err := AcquireAll(t.Context(), time.Millisecond, claims...)
					assert.Equal(t, out.Allowed, err == nil)
					return out
				}
				for way, call := range map[string]func(...Claim) Outcome{"TakeAll": TakeAll, "AcquireAll": acquire} {
					admits := c.admits && (!c.closes || way != "AcquireAll")
					for _, key := range []string{"known", "new"} {
						out := call(with.Claim(key, 1), without.Claim(c.key, 1))
						assert.Equal(t, admits, out.Allowed, way)
						assert.Equal(t, []limits.Source{limits.SourceProcess, limits.SourceUnrecorded},
							[]limits.Source{out.Provenance(0).Source(), out.Provenance(1).Source()}, way)
						assert.True(t, out.Provenance(0).Exact(), way)
						assert.False(t, out.Provenance(1).Exact(), way)
					}
					// The key with a word refuses. The other may not be asked to record.
					out := call(with.Claim("known", 1000), without.Claim(c.key, 1))
					assert.False(t, out.Allowed, way)
					assert.True(t, out.Provenance(0).Exact(), way)
				}
			})
		})
	}
	e := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
	out := TakeAll(e.Claim("key", 1))
	for _, none := range []int{-1, 1} {
		assert.Equal(t, limits.SourceNone, out.Provenance(none).Source())
	}
}

// A call that a key refuses is also refused by a closed engine, if that refuses: no wait would
// help, nor for a key that no table can find again.
func TestRefusedBesideAClosedEngine(t *testing.T) {
	known := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
	known.Choke("key")
	gone := open[float64](t, Config{Policy: funnel(1, 1, time.Hour), WhenUnavailable: Refuse})
	for _, key := range []float64{math.NaN(), 1} {
		out := TakeAll(known.Claim("key", 1), gone.Claim(key, 1))
		assert.False(t, out.Decisions[1].Allowed, key)
		assert.False(t, out.Provenance(1).Exact(), key)
		assert.True(t, out.Provenance(0).Exact(), key)
		require.NoError(t, gone.Close())
	}
}
