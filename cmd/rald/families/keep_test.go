package families

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// put replaces the kept engines.
func put(t *testing.T, s *Families, texts ...string) (kept []Family) {
	t.Helper()
	kept, err := s.Keep(parseAll(texts)...)
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
	s := open(t, Config{Most: 2})
	kept, err := s.Keep(parseAll([]string{"sliding 1/1s", "sliding 1/2s", "sliding 1/3s", "sliding 2/1s", "sliding 1/4s"})...)
	var faults Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 5)
	for i, fault := range faults {
		assert.Nil(t, kept[i])
		assert.Equal(t, i == 2 || i == 4, fault != nil, i)
	}
	require.ErrorIs(t, err, ErrTooMany)
	assert.Zero(t, count(s))
	put(t, s, "sliding 1/5s", "sliding 1/6s")
	assert.Equal(t, Config{Most: 2}.Room(parse("sliding 1/5s"), parse("sliding 3/5s"), parse("window 1/s")), nil)
}

// With their files and goroutines.
func TestReleasedEnginesEnd(t *testing.T) {
	config := Config{Most: 2, Dir: t.TempDir(), Every: time.Hour}
	s := open(t, config)
	put(t, s, "sliding 1/1s", "window 1/1s")
	goroutines := runtime.NumGoroutine()
	for i := range 20 {
		put(t, s, fmt.Sprintf("sliding 1/%ds", i+1), fmt.Sprintf("window 1/%ds", i+1))
		assert.Equal(t, 2, count(s))
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+20, "38 engines have ended")
	files, err := filepath.Glob(filepath.Join(config.Dir, "*"+suffix+"*"))
	require.NoError(t, err)
	assert.Len(t, files, 2, "the locks of the two that are in force, which are not saved yet")
}

// An engine stays while keys owe in it, while it is remembered, and once a call has found it.
func TestReleaseForgivesNothing(t *testing.T) {
	s := open(t, Config{Most: 4})
	kept := put(t, s, "window 5/365d", "sliding 5/1d", "funnel 5, 1/d", "queue 5, 1/d")
	require.True(t, kept[0].Engine().TakeWith(parse("window 5/365d"), "key", 3).Allowed)
	require.NoError(t, kept[1].Engine().Block("key", time.Hour))
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

	require.True(t, kept[0].Engine().Reset("key"))
	kept[1].Engine().Reset("key")
	require.NoError(t, s.Release(nil, nil))
	assert.Equal(t, 1, count(s))
	assert.NoError(t, kept[0].Health(), "an engine that was released is not ill")
	_, ok := s.Find(parse("window 5/365d"))
	assert.False(t, ok)
	family, err := s.Of(parse("window 5/365d"))
	require.NoError(t, err)
	assert.True(t, family.Engine().TakeWith(parse("window 5/365d"), "key", 5).Allowed)
}

func TestCallsFindNoReleasedEngine(t *testing.T) {
	for i := range 100 {
		s := open(t, Config{})
		limit := parse("window 1000/365d")
		if i%2 == 0 { // otherwise the callers make the engine
			_, err := s.Keep(limit)
			require.NoError(t, err)
		}
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				family, err := s.Of(limit)
				if assert.NoError(t, err) {
					assert.True(t, family.Engine().TakeWith(limit, "key", 1).Allowed)
				}
			})
		}
		assert.NoError(t, s.Release(nil, nil))
		callers.Wait()
		family, err := s.Of(limit)
		require.NoError(t, err)
		assert.Equal(t, 1, count(s))
		assert.EqualValues(t, 996, family.Engine().TakeWith(limit, "key", 0).Remaining)
	}
}
