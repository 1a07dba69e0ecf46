package limitfile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// table is a table of limits, as in a database.
type table struct {
	sync.Mutex
	limits map[string]string
	finds  [][]string
	err    error
}

func (t *table) find(_ context.Context, keys []string) (map[string]string, error) {
	time.Sleep(50 * time.Millisecond) // wall: the time of a query, in bubbles
	t.Lock()
	defer t.Unlock()
	t.finds = append(t.finds, keys)
	return maps.Clone(t.limits), t.err
}

func (t *table) set(key, limit string, err error) {
	t.Lock()
	defer t.Unlock()
	t.limits[key], t.err = limit, err
}

func (t *table) count() int {
	t.Lock()
	defer t.Unlock()
	return len(t.finds)
}

func source(t *testing.T, limit string, db *table, change func(*SourceConfig[string])) *Source[string] {
	t.Helper()
	p, err := policy.Parse(limit)
	require.NoError(t, err)
	config := SourceConfig[string]{Find: db.find, Config: engine.Config{Policy: p}}
	if change != nil {
		change(&config)
	}
	s, err := NewSource(config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// used returns the used units of a key and its limit.
func used(s *Source[string], key string) [2]int64 {
	x := s.Explain(key)
	return [2]int64{x.Used, x.Of}
}

// Promise: A limit of a key that comes or changes keeps the units that the key has used: 10 of 10 become 10 of 1,000.
func TestLimitFromASourceKeepsUse(t *testing.T) {
	for _, kind := range []string{"funnel %d, %[1]d/h", "window %d/h", "sliding %d/h"} {
		synctest.Test(t, func(t *testing.T) {
			limit := func(n int) string { return fmt.Sprintf(kind, n) }
			db := &table{limits: map[string]string{"ann": limit(1000)}}
			s := source(t, limit(10), db, nil)
			assert.Equal(t, 10, take(t, s, "ann", 12), "the limit is not known yet")
			assert.Equal(t, 10, take(t, s, "bob", 12))
			time.Sleep(100 * time.Millisecond)
			assert.Equal(t, [2]int64{10, 1000}, used(s, "ann"))
			assert.Equal(t, [2]int64{10, 10}, used(s, "bob"))
			assert.Equal(t, 1, take(t, s, "ann", 1))
			db.set("ann", limit(50), nil)
			time.Sleep(time.Minute)
			assert.EqualValues(t, 1000, used(s, "ann")[1], "it is not notified")
			finds := db.count()
			s.Changed("ann")
			time.Sleep(time.Second)
			assert.EqualValues(t, 50, used(s, "ann")[1])
			assert.LessOrEqual(t, used(s, "ann")[0], int64(11))
			db.set("ann", "", nil)
			s.Changed("ann", "eve")
			time.Sleep(time.Second)
			assert.EqualValues(t, 10, used(s, "ann")[1])
			assert.Equal(t, finds+2, db.count(), "known keys are not found again")
			assert.NoError(t, s.Health())
		})
	}
}

// Promise: While a source of limits is away, the last good limits hold, and Health says so.
func TestLastGoodLimitHoldsWhileTheSourceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &table{limits: map[string]string{"ann": "window 20/h", "bob": "window 30/h"}}
		s := source(t, "window 10/h", db, nil)
		s.Choke("ann")
		time.Sleep(100 * time.Millisecond)
		db.set("ann", "window 40/h", errors.New("no route"))
		s.Changed("ann")
		finds := db.count()
		began := time.Now()
		for range 100 {
			assert.True(t, s.Choke("eve") == (s.Stats().Refused == 0))
		}
		assert.Zero(t, time.Since(began), "no call waits")
		assert.Equal(t, 10, take(t, s, "bob", 20))
		time.Sleep(10 * time.Second)
		assert.EqualError(t, s.Health(), "ral: the source of limits: no route")
		assert.InDelta(t, 10, db.count()-finds, 2, "once a second")
		assert.EqualValues(t, 20, used(s, "ann")[1])
		db.set("ann", "window 40/h", nil)
		time.Sleep(2 * time.Second)
		assert.NoError(t, s.Health())
		assert.EqualValues(t, 40, used(s, "ann")[1], "the notification is not lost")
		assert.Equal(t, [2]int64{10, 30}, used(s, "bob"))
	})
}

// Promise: One query tells a source what has changed.
func TestSinceTellsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var marks []string
		db := &table{limits: map[string]string{}}
		changes := map[string]string{"ann": "window 20/h"}
		var fault error
		s := source(t, "window 10/h", db, func(c *SourceConfig[string]) {
			c.Every = time.Second
			c.Since = func(_ context.Context, mark string) (map[string]string, string, error) {
				db.Lock()
				defer db.Unlock()
				marks = append(marks, mark)
				return changes, strconv.Itoa(len(marks)), fault
			}
		})
		assert.Equal(t, 20, take(t, s, "ann", 30), "the limit is known before the first call")
		assert.Zero(t, db.count())
		change := func(limits map[string]string, err error) {
			db.Lock()
			defer db.Unlock()
			changes, fault = limits, err
		}
		change(map[string]string{"ann": "window 25/h", "new": "window 9/h"}, nil)
		time.Sleep(1500 * time.Millisecond)
		assert.Equal(t, 5, take(t, s, "ann", 30))
		assert.Equal(t, 1, s.known.Size(), "a key that has not come is not kept")
		change(nil, errors.New("no route"))
		time.Sleep(time.Second)
		assert.EqualError(t, s.Health(), "ral: the source of limits: no route")
		change(nil, nil)
		time.Sleep(time.Second)
		assert.NoError(t, s.Health())
		db.Lock()
		defer db.Unlock()
		assert.Equal(t, []string{"", "1", "2", "2"}, marks)
	})
}

func TestLimitsAreFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &table{limits: map[string]string{}}
		s := source(t, "window 10/h", db, func(c *SourceConfig[string]) { c.Again = time.Minute })
		for i := range 2500 {
			s.Choke(strconv.Itoa(i))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		require.Equal(t, 2500, s.known.Size())
		finds := db.count()
		db.set("7", "window 20/h", nil)
		time.Sleep(time.Minute + 500*time.Millisecond)
		assert.EqualValues(t, 20, used(s, "7")[1])
		assert.InDelta(t, 3, db.count()-finds, 1, "1,000 keys at a time")
	})
}

// Promise: A limit that is not accepted changes nothing, and Health says so without the key.
func TestLimitOfAnotherFamilyIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &table{limits: map[string]string{"ann": "window 20/h"}}
		s := source(t, "window 10/h", db, nil)
		s.Choke("ann")
		time.Sleep(100 * time.Millisecond)
		for text, want := range map[string]string{
			"window 20/d": `one of the later limits: ral: "window 20/d" is of another family than "window 10/h"`,
			"many":        `ral: limit "^many"`,
		} {
			db.set("ann", text, nil)
			s.Changed("ann")
			time.Sleep(time.Second)
			assert.ErrorContains(t, s.Health(), "1 keys keep their earlier limits")
			assert.ErrorContains(t, s.Health(), want)
			assert.NotContains(t, s.Health().Error(), "ann")
			assert.Equal(t, [2]int64{1, 20}, used(s, "ann"))
			assert.Zero(t, s.Stats().Misfits)
		}
		db.set("ann", "window 15/h", nil)
		s.Changed("ann")
		time.Sleep(time.Second)
		assert.NoError(t, s.Health())
	})
}

// Promise: A source knows at most twice as many keys as its engine, and forgets those that the engine has forgotten.
func TestSourceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &table{limits: map[string]string{"ann": "funnel 1000, 1000/h"}}
		s := source(t, "funnel 10, 10/h", db, func(c *SourceConfig[string]) { c.Config.MaxKeys = 64 })
		require.True(t, s.Choke("ann"))
		time.Sleep(time.Second)
		require.Equal(t, 900, take(t, s, "ann", 900))
		for i := range 2000 {
			s.Choke(strconv.Itoa(i))
			time.Sleep(time.Millisecond)
			require.LessOrEqual(t, s.known.Size(), 128)
		}
		time.Sleep(time.Second)
		assert.Equal(t, [2]int64{900, 1000}, used(s, "ann"), "a key that owes stays")
		assert.Greater(t, s.known.Size(), 16)
	})
}

// Promise: Calls beside changes of their limit from a source lose no unit and gain none.
func TestSourceUnderLoadIsExact(t *testing.T) {
	var finds atomic.Int64
	s, err := NewSource(SourceConfig[string]{
		Config: engine.Config{Policy: policy.Must(policy.Funnel(10_000, 1000, 365*24*time.Hour))},
		Find: func(context.Context, []string) (map[string]string, error) {
			if finds.Add(1)%2 == 0 {
				return map[string]string{"ann": "funnel 10000, 100000/365d"}, nil
			}
			return nil, nil
		},
	})
	require.NoError(t, err)
	defer s.Close()
	var stop atomic.Bool
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 500 {
				if s.Choke("ann") {
					admitted.Add(1)
				}
				time.Sleep(10 * time.Microsecond) // wall: so that limits change meanwhile
			}
			stop.Store(true)
		})
	}
	for !stop.Load() {
		s.Changed("ann")
		time.Sleep(time.Millisecond) // wall: as above
	}
	callers.Wait()
	assert.EqualValues(t, 2000, admitted.Load())
	assert.EqualValues(t, 2000, s.Explain("ann").Used)
	assert.Greater(t, finds.Load(), int64(2))
}

func TestNewSourceRefuses(t *testing.T) {
	find := func(context.Context, []string) (map[string]string, error) { return nil, nil }
	since := func(context.Context, string) (map[string]string, string, error) {
		return nil, "", errors.New("no route")
	}
	limit := engine.Config{Policy: policy.Must(policy.FixedWindow(1, time.Hour))}
	saved := limit
	saved.State.Path = t.TempDir() + "/state"
	for want, config := range map[string]SourceConfig[string]{
		"Find is nil":                    {Config: limit},
		"Every is 1ms, want 10ms":        {Find: find, Config: limit, Every: time.Millisecond},
		"Again is 1ns, want Every":       {Find: find, Config: limit, Again: 1},
		"Config.Policy is nil":           {Find: find},
		"Since is nil, want a function":  {Find: find, Config: saved},
		"the source of limits: no route": {Find: find, Since: since, Config: saved},
		"MaxKeys is -1":                  {Find: find, Config: engine.Config{Policy: limit.Policy, MaxKeys: -1}},
	} {
		_, err := NewSource(config)
		assert.ErrorContains(t, err, want)
	}
	s, err := NewSource(SourceConfig[string]{Find: find, Since: since, Config: limit})
	require.NoError(t, err, "without a saved state the calls begin with the engine's limit")
	assert.ErrorContains(t, s.Health(), "no route")
	require.NoError(t, s.Close())
	assert.ErrorIs(t, s.Health(), engine.ErrClosed)
}

// Promise: A limit from a source costs a call no allocation.
func TestSourceAllocatesNothing(t *testing.T) {
	s := source(t, "window 1M/h", &table{limits: map[string]string{"ann": "window 900k/h"}}, nil)
	s.put("ann", "window 900k/h", true)
	for _, key := range []string{"ann", "unknown"} {
		s.Choke(key)
		assert.Zero(t, testing.AllocsPerRun(100, func() { s.Choke(key) }), key)
	}
	assert.False(t, shape.IsNil(s.LimitFor("ann")))
}

// BenchmarkSource has calls on a million keys with limits of their own.
func BenchmarkSource(b *testing.B) {
	const number = 1 << 20
	keys := make([]string, number)
	for i := range keys {
		keys[i] = "customer-" + strconv.Itoa(i)
	}
	limits := [2]policy.Policy{policy.Must(policy.Funnel(1000, 1000, time.Second)), policy.Must(policy.Funnel(2000, 2000, time.Second))}
	run := func(b *testing.B, choke func(string) bool) {
		for _, key := range keys {
			choke(key)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			choke(keys[i*7919%number])
		}
	}
	b.Run("PolicyFor", func(b *testing.B) {
		known := make(map[string]policy.Policy, number)
		for i, key := range keys {
			known[key] = limits[i%2]
		}
		e, err := engine.New(engine.Config{Policy: limits[0], MaxKeys: number}, engine.PolicyFor(func(key string) policy.Policy { return known[key] }))
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		run(b, e.Choke)
	})
	all := make(map[string]string, number)
	for i, key := range keys {
		all[key] = limits[i%2].String()
	}
	s, err := NewSource(SourceConfig[string]{
		Config: engine.Config{Policy: limits[0], MaxKeys: number},
		Find:   func(context.Context, []string) (map[string]string, error) { return nil, nil },
		Since: func(_ context.Context, mark string) (map[string]string, string, error) {
			if mark != "" {
				return nil, mark, nil
			}
			return all, "1", nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.Run("Source", func(b *testing.B) { run(b, s.Choke) })
	b.Run("change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			s.put(keys[i%number], limits[i/number%2].String(), false)
		}
	})
}
