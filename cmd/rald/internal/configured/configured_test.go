package configured

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/configfile"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A refused change has no effect.
//
// Promise: A limit in force, or with debts, keeps its kind and period.
func TestLimitsStayInTheirFamily(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir)
	o.set("funnel 10, 1/d")
	require.True(t, o.take("k", 4).Allowed)
	refused := func() {
		t.Helper()
		before := o.engines()
		for _, text := range []string{"window 10/d", "queue 10, 1/d", "sliding 10/s"} {
			assert.EqualError(t, o.Set(file(text), nil), `limits.yaml:2: limits.api: keys count under "funnel 10, 1/d", of another family than "`+
				text+`": a limit of the same kind and period is accepted, or another name`)
		}
		assert.Equal(t, before, o.engines())
	}
	refused()
	assert.EqualValues(t, 6, o.remaining("k"))
	require.NoError(t, o.Set(&limitfile.File{}, nil))
	refused()
	o.close()
	o = open(t, dir)
	refused()
	o.set("funnel 10, 1/d")
	assert.EqualValues(t, 6, o.remaining("k"))

	require.NoError(t, o.Set(&limitfile.File{}, nil))
	require.True(t, o.of(Prefix("api")).family.Engine().Reset(Prefix("api")+"k"))
	o.set("window 10/d")
	assert.Equal(t, 1, o.engines())
}

// Each key gets exactly the largest limit. Limits only grow, so that none forgets a unit.
//
// Promise: A limit that changes under load stays exact.
func TestChangesUnderLoadAreExact(t *testing.T) {
	for name, steps := range map[string][]string{
		"bucket":     {"funnel 100, 1/d", "funnel 200, 1/d", "funnel 300, 2/d", "funnel 400, 1/d"},
		"window":     {"window 100/365d", "window 200/365d", "window 300/365d", "window 400/365d"},
		"to and fro": {"funnel 400, 1/d", "funnel 400, 2/d", "funnel 400, 1/d", "funnel 400, 3/d"},
	} {
		t.Run(name, func(t *testing.T) {
			changeUnderLoad(t, "", steps)
			if name == "bucket" {
				changeUnderLoad(t, t.TempDir(), steps)
			}
		})
	}
}

func changeUnderLoad(t *testing.T, dir string, steps []string) {
	const room, callers = 400, 4
	o := open(t, dir)
	o.set(steps[0])
	all := keys(10)
	admitted := make([]atomic.Int64, len(all))
	calls := make(chan struct{}, 1) // holds a value if the callers have progressed
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := caller; ; i++ {
				k := i % len(all)
				admitted[k].Add(admit(t, o, all[k]))
				select {
				case <-stop:
					return
				case calls <- struct{}{}:
				default:
				}
			}
		})
	}
	for _, step := range steps[1:] {
		for range 5 {
			<-calls
		}
		o.set(step)
	}
	close(stop)
	wg.Wait()
	for k := range all {
		for {
			n := admit(t, o, all[k])
			if n == 0 {
				break
			}
			admitted[k].Add(n)
		}
		assert.EqualValues(t, room, admitted[k].Load(), "key %d", k)
	}
}

// admit makes some call, and returns the units it took.
func admit(t *testing.T, o *opened, key string) int64 {
	call := o.Begin()
	defer call.End()
	u, ok := call.Find([]byte("api"), []byte(key))
	if !assert.True(t, ok) {
		return 0
	}
	if d, err := u.Family.TakeWith(context.Background(), u.Limit, u.Key, 1); assert.NoError(t, err) && d.Allowed {
		return 1
	}
	return 0
}

// A take from several limits sees a single state of them, however many change.
func TestCallSeesOneMoment(t *testing.T) {
	o := open(t, "")
	of := func(n int) *limitfile.File {
		f, err := limitfile.Parse("limits.yaml", fmt.Appendf(nil, "limits:\n  a: window %d/365d\n  b: window %d/365d\n", n, n))
		require.NoError(t, err)
		return f
	}
	require.NoError(t, o.Set(of(1), nil))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				call := o.Begin()
				a, _ := call.Find([]byte("a"), []byte("k"))
				b, _ := call.Find([]byte("b"), []byte("k"))
				assert.Equal(t, a.Limit.Limit(), b.Limit.Limit())
				call.End()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for n := range 50 {
		also := false
		require.NoError(t, o.Set(of(n+2), func() { also = true }))
		assert.True(t, also)
	}
	close(stop)
	wg.Wait()
}

// Calls no longer find the limit meanwhile.
//
// Promise: A removed limit's keys still count when it returns.
func TestRemovedLimitsKeepTheirDebts(t *testing.T) {
	o := open(t, t.TempDir())
	o.set("funnel 10, 1/d")
	require.True(t, o.take("k", 7).Allowed)
	require.NoError(t, o.Set(&limitfile.File{}, nil))
	call := o.Begin()
	_, ok := call.Find([]byte("api"), []byte("k"))
	call.End()
	assert.False(t, ok)
	assert.Empty(t, o.All())
	require.NoError(t, o.Set(&limitfile.File{}, nil))
	o.set("funnel 20, 1/d")
	assert.EqualValues(t, 13, o.remaining("k"))
	assert.Len(t, o.All(), 1)
}

// A file with a limit that needs too many engines, with its line.
func TestSetRefusesTheWholeFile(t *testing.T) {
	o := openIn(t, families.Config{Most: 1}, "")
	_, err := o.keep.Of(policy.Must(policy.Parse("sliding 1/h")))
	require.NoError(t, err)
	o.set("funnel 10, 1/d") // calls have left room for it
	require.True(t, o.take("k", 4).Allowed)
	f, err := limitfile.Parse("limits.yaml", []byte("limits:\n  api: funnel 20, 1/d\n  more: window 1/h\n  most: window 1/m\n"))
	require.NoError(t, err)
	err = o.Set(f, func() { t.Error("nothing is exchanged") })
	require.ErrorIs(t, err, families.ErrTooMany)
	assert.ErrorContains(t, err, "limits.yaml:3: limits.more: ")
	assert.ErrorContains(t, err, "limits.yaml:4: limits.most: ")
	assert.EqualValues(t, 6, o.remaining("k"))
	assert.Len(t, o.All(), 1)
	_, err = New(Config{})
	assert.ErrorContains(t, err, "Families is nil")
}

// When another limit changes they wait on. No other call takes under the old limit meanwhile.
func TestWaitingCallsGoOnUnderTheNewLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, "")
		o.set("funnel 10, 1/d")
		require.True(t, o.take("k", 10).Allowed)
		granted := make(chan policy.Decision, 2)
		for range 2 {
			go func() {
				grant, err := o.Hold(t.Context(), limits.Call[string]{Key: Prefix("api") + "k", N: 1, Patience: 72 * time.Hour})
				assert.NoError(t, err)
				granted <- grant.Decision
			}()
		}
		synctest.Wait()
		f, err := limitfile.Parse("limits.yaml", []byte("limits:\n  api: funnel 10, 1/d\n  more: window 1/h\n"))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, o.Set(f, nil))
		assert.True(t, (<-granted).Allowed)
		assert.Equal(t, 24*time.Hour, time.Since(start), "its turn is as it was promised")

		o.set("funnel 10, 1/h")
		synctest.Wait()
		assert.True(t, (<-granted).Allowed)
		assert.Equal(t, 25*time.Hour, time.Since(start), "one unit drains in an hour now")
		assert.Zero(t, o.remaining("k"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		grant, err := o.Hold(ctx, limits.Call[string]{Key: Prefix("api") + "k", N: 1, Patience: 72 * time.Hour})
		assert.NoError(t, err)
		assert.False(t, grant.Allowed)
		_, err = o.Hold(ctx, limits.Call[string]{Key: "k", N: 1})
		assert.ErrorContains(t, err, `no limit is configured for the key "k"`)
	})
}

func TestChangeWaitsUntilCallsHaveGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, "")
		o.set("funnel 10, 1/d")
		call := o.Begin()
		call.hold()
		turn, done := call.wait(t.Context(), o.of(Prefix("api")))
		set := false
		go func() {
			o.set("funnel 11, 1/d")
			set = true
		}()
		synctest.Wait()
		assert.Error(t, turn.Err())
		assert.False(t, set)
		assert.True(t, done())
		synctest.Wait()
		assert.True(t, set)
	})
}

// For keys with prefixes.
func TestLimitsAreALimiter(t *testing.T) {
	o := open(t, "")
	o.set("window 10/365d")
	key := Prefix("api") + "k"
	a, err := o.Ask(t.Context(), key, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 7, a.Remaining)
	assert.EqualValues(t, 7, o.remaining("k"))
	assert.Equal(t, "window 10/365d", o.LimitFor(key).String())
	assert.Nil(t, o.LimitFor(Prefix("other")+"k"))
	o.set("window 20/365d")
	a, err = o.Ask(t.Context(), key, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 14, a.Remaining)

	f := file("window 20/365d")
	f.Add(`["a"]`, f.Limits["api"], configfile.Place{})
	require.NoError(t, o.Set(f, nil))
	assert.Len(t, o.All(), 1)
	call := o.Begin()
	_, ok := call.Find([]byte(`["a"]`), []byte("k"))
	call.End()
	assert.False(t, ok, "it is no client's to call")
	a, err = o.Ask(t.Context(), Prefix(`["a"]`)+"k", 1)
	require.NoError(t, err)
	assert.EqualValues(t, 19, a.Remaining)
}

// BenchmarkFind is the overhead of a constant limit over its engine.
func BenchmarkFind(b *testing.B) {
	o := open(b, "")
	o.set("funnel 1M, 1M/s")
	name, key := []byte("api"), []byte("key")
	limit := policy.Must(policy.Parse("funnel 1M, 1M/s"))
	family, err := o.keep.Of(limit)
	require.NoError(b, err)
	ctx := context.Background()
	b.Run("engine", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				_, _ = family.TakeWith(ctx, limit, Prefix("api")+string(key), 1)
			}
		})
	})
	b.Run("configured", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			call := o.Begin()
			for p.Next() {
				u, _ := call.Find(name, key)
				_, _ = u.Family.TakeWith(ctx, u.Limit, u.Key, 1)
				call.End()
			}
		})
	})
}
