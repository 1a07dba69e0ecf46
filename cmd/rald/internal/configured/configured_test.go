package configured

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
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
			assert.EqualError(t, o.Set(t.Context(), file(text), nil), `limits.yaml:2: api: keys count under "funnel 10, 1/d", of another family than "`+
				text+`": a limit of the same kind and period is accepted, or another name`)
		}
		assert.Equal(t, before, o.engines())
	}
	refused()
	assert.EqualValues(t, 6, o.remaining("k"))
	require.NoError(t, o.Set(t.Context(), &limitfile.File{}, nil))
	refused()
	o.close()
	o = open(t, dir)
	refused()
	o.set("funnel 10, 1/d")
	assert.EqualValues(t, 6, o.remaining("k"))

	require.NoError(t, o.Set(t.Context(), &limitfile.File{}, nil))
	require.True(t, families.EngineOf(o.limitOf(Prefix("api")).family).Reset(Prefix("api")+"k"))
	o.set("window 10/d")
	assert.Equal(t, 1, o.engines())
}

// underLoad calls change while four callers call call, again and again.
func underLoad(change func(), call func(caller, n int)) {
	stop := make(chan struct{})
	// called holds a value if the callers have progressed.
	called := make(chan struct{}, 1)
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
		require.NoError(t, o.Set(t.Context(), f, func() { also = true }))
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

// The last limits have the faults, in order. Room reports the same without engines.
func TestRefusedFileChangesNothing(t *testing.T) {
	config := families.Config{Max: 2}
	o := openIn(t, config, "")
	o.set("funnel 10, 1/d")
	require.True(t, o.take("k", 4).Allowed)
	refused := manyFamilies(t, 1, 4)
	err := o.Set(t.Context(), refused, func() { t.Error("nothing is exchanged") })
	require.ErrorIs(t, err, families.ErrTooMany)
	assert.ErrorContains(t, err, "limits.yaml:4: l3: no room")
	assert.ErrorContains(t, err, "limits.yaml:5: l4: no room")
	assert.EqualError(t, Room(config, refused), err.Error())
	require.NoError(t, Room(config, manyFamilies(t, 1, 2)))
	assert.Equal(t, 1, o.engines())
	assert.EqualValues(t, 6, o.remaining("k"))
	assert.Len(t, maps.Collect(o.All()), 1)
	_, err = New(Config{})
	assert.ErrorContains(t, err, "Families is nil")
}

// When another limit changes they wait on.
//
// Promise: Waiting calls go on under a changed limit, and none takes under the old.
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
		require.NoError(t, o.Set(t.Context(), f, nil))
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
		turn, done := call.wait(t.Context(), o.limitOf(Prefix("api")))
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
	a, err := o.Admit(t.Context(), key, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 7, a.Remaining)
	assert.EqualValues(t, 7, o.remaining("k"))
	assert.Equal(t, "window 10/365d", o.LimitFor(key).String())
	assert.Nil(t, o.LimitFor(Prefix("other")+"k"))
	o.set("window 20/365d")
	a, err = o.Admit(t.Context(), key, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 14, a.Remaining)

	f := file("window 20/365d")
	f.Add(limitfile.Named{Name: `["a"]`, Policy: f.All()[0].Policy})
	require.NoError(t, o.Set(t.Context(), f, nil))
	assert.Len(t, maps.Collect(o.All()), 2)
	assert.Equal(t, 1, o.Len())
	call := o.Begin()
	_, ok := call.Find([]byte(`["a"]`), []byte("k"))
	call.End()
	assert.False(t, ok, "it is no client's to call")
	a, err = o.Admit(t.Context(), Prefix(`["a"]`)+"k", 1)
	require.NoError(t, err)
	assert.EqualValues(t, 19, a.Remaining)
}

// The limits changed while the program did not run.
//
// Promise: A restart with changed figures forgets nothing.
func TestRestartWithOtherLimits(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		limit string
		// left is the number of units left before 3 more are taken.
		left int64
	}{{"funnel 100, 1/d", 100}, {"funnel 1000, 1000/365d", 997}, {"funnel 50, 1/d", 44}, {"funnel 60, 1/d", 51}} {
		o := open(t, dir)
		o.set(c.limit)
		require.Equal(t, c.left, o.remaining("k"), "%d: %s", i, c.limit)
		require.True(t, o.take("k", 3).Allowed)
		o.close()
	}
	// Keys of a removed limit are kept, too.
	o := open(t, dir)
	require.NoError(t, o.Set(t.Context(), &limitfile.File{}, nil))
	o.close()
	o = open(t, dir)
	o.set("funnel 40, 1/d")
	assert.EqualValues(t, 40-12, o.remaining("k"))
}

// Until they are paid. Calls no longer find the limit meanwhile. The record forgets limits without
// keys.
//
// Promise: A removed limit's keys still count when it returns.
func TestRemovedLimitsKeepTheirDebts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), []byte(`{"old": {"limit": "sliding 10/365d"}}`), 0o600))
	o := open(t, dir)
	o.set("window 10/365d")
	require.True(t, o.take("k", 7).Allowed)
	for i := range 3 {
		require.NoError(t, o.Set(t.Context(), manyFamilies(t, i+1, 1), nil))
	}
	call := o.Begin()
	_, ok := call.Find([]byte("api"), []byte("k"))
	call.End()
	assert.False(t, ok)
	assert.Len(t, maps.Collect(o.All()), 1)
	remembered := func() string {
		text, err := os.ReadFile(filepath.Join(dir, FileName))
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, remembered(), `"api"`)
	assert.NotContains(t, remembered(), `"old"`)
	assert.NotContains(t, remembered(), `"l1"`, "no key owed under it")
	assert.Equal(t, 3, o.engines(), "that of api, and those of the last two files")
	o.set("window 20/365d")
	assert.EqualValues(t, 13, o.remaining("k"))

	require.NoError(t, o.Set(t.Context(), manyFamilies(t, 1, 1), nil))
	require.True(t, families.EngineOf(o.limitOf(Prefix("api")).family).Reset(Prefix("api")+"k"))
	require.NoError(t, o.Set(t.Context(), manyFamilies(t, 1, 1), nil))
	assert.NotContains(t, remembered(), `"api"`)
	assert.Equal(t, 1, o.engines())
}

// If unreadable the start fails, if unwritable a change.
func TestRecordThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, FileName)
	o := openIn(t, families.Config{}, filepath.Join(dir, "none", FileName))
	for _, text := range []string{"{", `{"api": {"limit": "x"}}`} {
		require.NoError(t, os.WriteFile(record, []byte(text), 0o600))
		_, err := New(Config{Families: o.keep, File: record})
		assert.ErrorContains(t, err, record, text)
		assert.ErrorContains(t, err, "move the file away to begin with", text)
	}
	assert.ErrorContains(t, o.Set(t.Context(), file("funnel 1, 1/s"), nil), "cannot be written down")
	assert.Empty(t, maps.Collect(o.All()))
}

// BenchmarkChange reports the time for each key of the changed limits, and its memory meanwhile.
func BenchmarkChange(b *testing.B) {
	for _, limits := range []int{1, 500} {
		b.Run(strconv.Itoa(limits), func(b *testing.B) {
			o := open(b, "")
			change := func(rate int) uint64 {
				text := "limits:\n"
				for i := range limits {
					text += fmt.Sprintf("  l%d: funnel 10, %d/d\n", i, rate)
				}
				f, err := limitfile.Parse("limits.yaml", []byte(text))
				require.NoError(b, err)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				require.NoError(b, o.Set(b.Context(), f, nil))
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc
			}
			change(1)
			const n = 200_000
			for i := range n {
				call := o.Begin()
				u, _ := call.Find(fmt.Append(nil, "l", i%limits), []byte(strconv.Itoa(i)))
				families.EngineOf(u.Family).TakeWith(u.Limit, u.Key, 5)
				call.End()
			}
			b.ResetTimer()
			var bytes uint64
			for i := range b.N {
				bytes += change(2 + i)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
			b.ReportMetric(float64(bytes)/float64(b.N)/n, "B/key")
		})
	}
}

// Its words count as they are.
//
// Promise: Redis keys follow changes within a limit's kind and period; others are refused.
func TestLimitsInRedisChangeWithinTheirFamily(t *testing.T) {
	of, _ := redistest.Open(t, fleet.FallbackShare)
	o := openIn(t, of, "")
	assert.Equal(t, 1, o.Servers(false))
	o.set("window 10/300d")
	require.True(t, o.take("k", 7).Allowed)
	o.set("window 20/300d")
	assert.EqualValues(t, 13, o.remaining("k"))
	err := o.Set(t.Context(), file("funnel 20, 1/d"), nil)
	assert.ErrorContains(t, err, `limits.yaml:2: api: keys count under "window 20/300d", of another family than "funnel 20, 1/d"`)
	assert.EqualValues(t, 13, o.remaining("k"))

	// A refused file leaves no limiter behind, and a removed limit keeps its limiter.
	before := o.engines()
	require.Error(t, o.Set(t.Context(), file("sliding 20/1d"), nil))
	assert.Equal(t, before, o.engines())
	require.NoError(t, o.Set(t.Context(), manyFamilies(t, 1, 1), nil))
	require.NoError(t, o.Set(t.Context(), manyFamilies(t, 1, 1), nil))
	err = o.Set(t.Context(), file("sliding 20/1d"), nil)
	assert.ErrorContains(t, err, "of another family")
	o.set("window 20/300d")
	assert.EqualValues(t, 13, o.remaining("k"))
}
