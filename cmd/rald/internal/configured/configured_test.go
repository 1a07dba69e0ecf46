package configured

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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

// underLoad calls change while four callers call call, again and again.
func underLoad(change func(), call func(caller, n int)) {
	stop := make(chan struct{})
	called := make(chan struct{}, 1) // holds a value if the callers have progressed
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for n := 0; ; n++ {
				call(caller, n)
				select {
				case <-stop:
					return
				case called <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 5 {
		<-called
	}
	change()
	for range 5 {
		<-called
	}
	close(stop)
	callers.Wait()
}

// Each key gets exactly the largest limit. Limits only grow, so that none forgets a unit.
//
// Promise: A limit that changes under load stays exact.
func TestChangesUnderLoadAreExact(t *testing.T) {
	for dir, steps := range map[string][]string{
		"":          {"funnel 100, 1/d", "funnel 200, 1/d", "funnel 300, 2/d", "funnel 400, 1/d"},
		t.TempDir(): {"window 100/365d", "window 200/365d", "window 300/365d", "window 400/365d"},
		t.TempDir(): {"funnel 400, 1/d", "funnel 400, 2/d", "funnel 400, 1/d", "funnel 400, 3/d"},
	} {
		o := open(t, dir)
		o.set(steps[0])
		admitted := make([]atomic.Int64, 10)
		take := func(key int) bool {
			allowed := o.take(strconv.Itoa(key), 1).Allowed
			if allowed {
				admitted[key].Add(1)
			}
			return allowed
		}
		for _, step := range steps[1:] {
			underLoad(func() { o.set(step) }, func(caller, n int) { take((caller + n) % len(admitted)) })
		}
		for key := range admitted {
			for take(key) {
			}
			assert.EqualValues(t, 400, admitted[key].Load(), "key %d: %s", key, steps)
		}
	}
}

// A take from several limits sees a single state of them, however many change.
func TestCallSeesOneMoment(t *testing.T) {
	o := open(t, "")
	change := func(n int) {
		f, err := limitfile.Parse("limits.yaml", fmt.Appendf(nil, "limits:\n  a: window %d/365d\n  b: window %d/365d\n", n, n))
		require.NoError(t, err)
		also := false
		require.NoError(t, o.Set(f, func() { also = true }))
		assert.True(t, also)
	}
	change(1)
	underLoad(func() {
		for n := range 50 {
			change(n + 2)
		}
	}, func(int, int) {
		call := o.Begin()
		defer call.End()
		a, _ := call.Find([]byte("a"), []byte("k"))
		b, _ := call.Find([]byte("b"), []byte("k"))
		assert.Equal(t, a.Limit.Limit(), b.Limit.Limit())
	})
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

// The last limits have the faults, in order. Room reports the same without engines.
func TestRefusedFileTakesNoRoom(t *testing.T) {
	o := openIn(t, families.Config{Most: 2}, "")
	for _, text := range []string{"sliding 1/h", "sliding 1/m"} {
		_, err := o.keep.Of(policy.Must(policy.Parse(text)))
		require.NoError(t, err)
	}
	o.set("funnel 10, 1/d") // calls have left room for it
	require.True(t, o.take("k", 4).Allowed)
	refused := manyFamilies(t, 1, 4)
	err := o.Set(refused, func() { t.Error("nothing is exchanged") })
	require.ErrorIs(t, err, families.ErrTooMany)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 2)
	for i, line := range lines {
		assert.Contains(t, line, fmt.Sprintf("limits.yaml:%d: limits.l%d: no room", 4+i, 3+i))
	}
	assert.EqualError(t, Room(families.Config{Most: 2}, refused), err.Error())
	assert.Equal(t, 3, o.engines())
	assert.EqualValues(t, 6, o.remaining("k"))
	assert.Len(t, o.All(), 1)
	require.NoError(t, Room(families.Config{Most: 2}, manyFamilies(t, 1, 2)))
	for from := range 3 {
		require.NoError(t, o.Set(manyFamilies(t, 2*from+1, 2), nil), "the families before need no room")
	}
	assert.Len(t, o.All(), 2)
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
	call := o.Begin()
	u, _ := call.Find(name, key)
	call.End()
	b.Run("engine", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				_, _ = u.Family.TakeWith(b.Context(), u.Limit, u.Key, 1)
			}
		})
	})
	b.Run("configured", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			call := o.Begin()
			for p.Next() {
				u, _ := call.Find(name, key)
				_, _ = u.Family.TakeWith(b.Context(), u.Limit, u.Key, 1)
				call.End()
			}
		})
	})
}
