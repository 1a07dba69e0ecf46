package families

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func parse(text string) policy.Policy { return policy.Must(policy.Parse(text)) }

func open(t *testing.T, config Config) *Families {
	t.Helper()
	s, err := New(config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func count(s *Families) (n int) {
	for range s.All() {
		n++
	}
	return n
}

// Promise: A family's textual limits share a key's debt.
func TestLimitsOfOneFamilyShareAnEngine(t *testing.T) {
	s := open(t, Config{})
	for _, family := range [][]string{
		{"funnel 100, 10/s", "funnel 1, 1/h", "funnel 1M, 1M/s"},
		{"queue 20, 100/s", "queue 0, 1/m"},
		{"bursty 10/s, 50", "bursty 1/m, 2"},
		{"warming up 100/s over 10s, cold 3"},
		{"warming up 100/s over 20s, cold 3"},
		{"window 1000/h", "window 1/h"},
		{"window 10/m"},
		{"window 1000/h aligned", "window 7/h aligned"},
		{"window 10000/month in Europe/Berlin", "window 1/month in Europe/Berlin", "window 1/month from 20 in Europe/Berlin"},
		{"window 10000/month in UTC"},
		{"sliding 1000/h", "sliding 2/h"},
		{"at most 5/10m", "at most 1000/10m"},
	} {
		before := count(s)
		for _, text := range family {
			limit := parse(text)
			family, err := s.Of(limit)
			require.NoError(t, err, text)
			d := EngineOf(family).TakeWith(limit, text, 1)
			assert.True(t, d.Allowed, text)
			assert.NotZero(t, d.Limit, text)
		}
		assert.Equal(t, before+1, count(s), family)
	}
	for _, c := range []struct {
		limit   string
		n       int64
		allowed bool
	}{{"window 10/m", 6, true}, {"window 6/m", 1, false}, {"window 6/h", 6, true}} {
		family, err := s.Of(parse(c.limit))
		require.NoError(t, err)
		assert.Equal(t, c.allowed, EngineOf(family).TakeWith(parse(c.limit), "bob", c.n).Allowed, c.limit)
	}
}

// Promise: A thousand limits need no more engines than their families.
func TestThousandLimitsNeedFewGoroutines(t *testing.T) {
	s := open(t, Config{})
	start := runtime.NumGoroutine()
	for i := range 1000 {
		for _, text := range []string{"funnel %d, 5/s", "sliding %d/m", "at most %d/h"} {
			_, err := s.Of(parse(fmt.Sprintf(text, i+1)))
			require.NoError(t, err)
		}
	}
	assert.Equal(t, 3, count(s))
	must.Await(t, func() bool { return runtime.NumGoroutine()-start <= 12 }, "at most 12 goroutines")
}

// memory returns the bytes of heap and stacks in use after a collection.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// Promise: Memory and files are within the bounds of docs/serving.md.
func TestFamiliesKeepToDocumentedSizes(t *testing.T) {
	const keys, families = 100_000, 16
	config := Config{Dir: t.TempDir(), Every: time.Hour}
	s, err := New(config)
	require.NoError(t, err)
	before := memory()
	for i := range families {
		_, err := s.Of(parse(fmt.Sprintf("window 5/%dh", i+2)))
		require.NoError(t, err)
	}
	ofFamily := (memory() - before) / families
	limit := parse("funnel 16, 1/h")
	family, err := s.Of(limit)
	require.NoError(t, err)
	before = memory()
	for i := range keys {
		EngineOf(family).TakeWith(limit, fmt.Sprintf("user:%015d", i), 1)
	}
	ofKey := (memory() - before) / keys
	require.NoError(t, s.Close())
	info, err := os.Stat(filepath.Join(config.Dir, "funnel_1%2C_1%2Fs.state"))
	require.NoError(t, err)
	saved := float64(info.Size()) / keys
	t.Logf("a family: %.0f bytes; a key of 20 bytes: %.0f; a saved key: %.1f", ofFamily, ofKey, saved)
	assert.Less(t, ofFamily, 1e6)
	assert.Less(t, ofKey, 400.0)
	assert.Less(t, saved, 60.0)
}

// Promise: Clients' own limits leave room for configured limits.
func TestConfiguredLimitsHaveRoomOfTheirOwn(t *testing.T) {
	s := open(t, Config{Max: 2})
	openLimit := func(text string) error { _, err := s.Of(parse(text)); return err }
	keep := func(texts ...string) error { _, err := s.Keep(needs(parseAll(texts)...)...); return err }
	require.NoError(t, openLimit("sliding 1/1s"))
	require.NoError(t, openLimit("sliding 1/2s"))
	require.ErrorIs(t, openLimit("sliding 1/3s"), ErrTooMany)
	assert.EqualError(t, openLimit("sliding 1/3s"), "no room for another family of limits: there are already 2 that are not configured")
	require.NoError(t, keep("sliding 1/3s"))
	require.NoError(t, openLimit("sliding 5/3s"), "clients may use its engine")
	require.NoError(t, keep("sliding 1/3s", "sliding 1/1s"), "an engine of clients may become a configured one")
	require.NoError(t, openLimit("sliding 1/4s"), "which leaves them another")
	require.ErrorIs(t, openLimit("sliding 1/5s"), ErrTooMany)
	assert.EqualError(t, keep("sliding 1/3s", "sliding 1/1s", "sliding 1/5s"),
		"no room for another family of limits: there are already 2 that are configured")
	assert.Equal(t, 4, count(s))
}

func parseAll(texts []string) (all []policy.Policy) {
	for _, text := range texts {
		all = append(all, parse(text))
	}
	return all
}

func needs(limits ...policy.Policy) (all []Need) {
	for _, limit := range limits {
		all = append(all, Need{Limit: limit})
	}
	return all
}

// New finds all states, also of limits that calls brought. They leave room for configured limits.
func TestStateSurvivesARestart(t *testing.T) {
	texts := []string{
		"funnel 100, 1/h", "queue 20, 1/h", "bursty 1/h, 50", "warming up 100/h over 10h, cold 3", "window 1000/d",
		"window 1000/90d aligned", "window 10000/year in Europe/Berlin", "sliding 1000/d", "at most 5/1d",
	}
	config := Config{Max: len(texts), Dir: filepath.Join(t.TempDir(), "made"), Every: time.Hour}
	s, err := New(config)
	require.NoError(t, err)
	_, err = s.Keep(needs(parse(texts[0]))...)
	require.NoError(t, err)
	for _, text := range texts {
		family, err := s.Of(parse(text))
		require.NoError(t, err)
		require.True(t, EngineOf(family).TakeWith(parse(text), "key", 1).Allowed)
	}
	require.NoError(t, s.Close())
	_, err = s.Of(parse("funnel 1, 1/s"))
	require.NoError(t, err, "a closed engine refuses by itself")
	_, err = s.Of(parse("sliding 1/s"))
	require.ErrorIs(t, err, engine.ErrClosed)

	s = open(t, config)
	_, err = s.Of(parse("sliding 5/5d"))
	require.ErrorIs(t, err, ErrTooMany)
	_, err = s.Keep(needs(parse("sliding 5/5d"), parse("sliding 5/6d"))...)
	require.NoError(t, err)
	assert.Equal(t, len(texts)+2, count(s))
	for _, text := range texts {
		limit := parse(text)
		family, err := s.Of(limit)
		require.NoError(t, err)
		assert.NotZero(t, EngineOf(family).TakeWith(limit, "key", 0).ResetAfter, text)
		assert.Equal(t, 1, EngineOf(family).Len(), text)
	}
	assert.Equal(t, len(texts)+2, count(s))
}

// A directory has one owner, before any state is saved.
func TestNewNamesWhatCannotBeLoaded(t *testing.T) {
	for name, want := range map[string]string{
		"funnel_1%2C_1%2Fs.state": "funnel_1%2C_1%2Fs.state",
		"funnel_9%2C_1%2Fs.state": "a file of these keys is named funnel_1%2C_1%2Fs.state",
		"other.state":             "other.state",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("garbage"), 0o600))
		_, err := New(Config{Dir: dir})
		assert.ErrorContains(t, err, want)
		assert.Equal(t, name == want && name != "other.state", errors.Is(err, engine.ErrState), name)
		_, err = New(Config{Dir: filepath.Join(dir, name)})
		assert.Error(t, err, "a file in place of a directory")
	}
	config := Config{Dir: t.TempDir()}
	open(t, config)
	_, err := New(config)
	require.ErrorIs(t, err, statefile.ErrLocked)
	assert.ErrorContains(t, err, config.Dir)
}

// put replaces the kept engines.
func put(t *testing.T, s *Families, texts ...string) (kept []Family) {
	t.Helper()
	kept, err := s.Keep(needs(parseAll(texts)...)...)
	require.NoError(t, err)
	require.NoError(t, s.Release(setOf(kept...), nil))
	return kept
}

func setOf(all ...Family) map[Family]bool {
	set := map[Family]bool{}
	for _, family := range all {
		set[family] = true
	}
	return set
}

// Each limit has its fault.
func TestRefusedConfigurationTakesNoRoom(t *testing.T) {
	s := open(t, Config{Max: 2})
	all := needs(parseAll([]string{"sliding 1/1s", "sliding 1/2s", "sliding 1/3s", "sliding 2/1s", "sliding 1/4s"})...)
	for i := range all {
		all[i].At.Key = fmt.Sprint(i)
	}
	kept, err := s.Keep(all...)
	var order []string
	for _, fault := range err.(interface{ Unwrap() []error }).Unwrap() {
		var here *configfile.Error
		require.ErrorAs(t, fault, &here)
		order = append(order, here.Key)
	}
	assert.Equal(t, []string{"2", "4"}, order)
	assert.Equal(t, make([]Family, 5), kept)
	require.ErrorIs(t, err, ErrTooMany)
	assert.Zero(t, count(s))
	put(t, s, "sliding 1/5s", "sliding 1/6s")
	assert.Equal(t, Config{Max: 2}.Room(needs(parse("sliding 1/5s"), parse("sliding 3/5s"), parse("window 1/s"))...), nil)
}

// With their files and goroutines.
func TestReleasedEnginesEnd(t *testing.T) {
	config := Config{Max: 2, Dir: t.TempDir(), Every: time.Hour}
	s := open(t, config)
	put(t, s, "sliding 1/1s", "window 1/1s")
	goroutines := runtime.NumGoroutine()
	for i := range 20 {
		put(t, s, fmt.Sprintf("sliding 1/%ds", i+1), fmt.Sprintf("window 1/%ds", i+1))
		assert.Equal(t, 2, count(s))
	}
	must.Await(t, func() bool { return runtime.NumGoroutine() <= goroutines+20 }, "38 engines have ended")
	files, err := filepath.Glob(filepath.Join(config.Dir, "*"+suffix+"*"))
	require.NoError(t, err)
	assert.Len(t, files, 2, "the locks of the two that are in force, which are not saved yet")
}

// An engine stays while keys owe in it, while it is remembered, and once a call has found it.
func TestReleaseForgivesNothing(t *testing.T) {
	s := open(t, Config{Max: 4})
	kept := put(t, s, "window 5/365d", "sliding 5/1d", "funnel 5, 1/d", "queue 5, 1/d")
	require.True(t, EngineOf(kept[0]).TakeWith(parse("window 5/365d"), "key", 3).Allowed)
	require.NoError(t, EngineOf(kept[1]).Block("key", time.Hour))
	_, err := s.Of(parse("funnel 7, 1/d"))
	require.NoError(t, err)
	require.NoError(t, s.Release(nil, setOf(kept[3])))
	assert.Equal(t, 4, count(s))
	for i, text := range []string{"window 6/365d", "sliding 6/1d", "funnel 6, 1/d", "queue 6, 1/d"} {
		family, ok := s.Find(parse(text))
		assert.True(t, ok && family == kept[i], text)
	}
	_, err = s.Of(parse("sliding 1/2d"))
	require.ErrorIs(t, err, ErrTooMany, "they count as engines of calls")

	require.True(t, EngineOf(kept[0]).Reset("key"))
	EngineOf(kept[1]).Reset("key")
	require.NoError(t, s.Release(nil, nil))
	assert.Equal(t, 1, count(s))
	assert.NoError(t, kept[0].Health(), "an engine that was released is not ill")
	_, ok := s.Find(parse("window 5/365d"))
	assert.False(t, ok)
	family, err := s.Of(parse("window 5/365d"))
	require.NoError(t, err)
	assert.True(t, EngineOf(family).TakeWith(parse("window 5/365d"), "key", 5).Allowed)
}

func TestCallsFindNoReleasedEngine(t *testing.T) {
	for i := range 100 {
		s := open(t, Config{})
		limit := parse("window 1000/365d")
		// Otherwise the callers make the engine.
		if i%2 == 0 {
			_, err := s.Keep(needs(limit)...)
			require.NoError(t, err)
		}
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				family, err := s.Of(limit)
				if assert.NoError(t, err) {
					assert.True(t, EngineOf(family).TakeWith(limit, "key", 1).Allowed)
				}
			})
		}
		assert.NoError(t, s.Release(nil, nil))
		callers.Wait()
		family, err := s.Of(limit)
		require.NoError(t, err)
		assert.Equal(t, 1, count(s))
		assert.EqualValues(t, 996, EngineOf(family).TakeWith(limit, "key", 0).Remaining)
	}
}
