package named

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Limits that were changed while the program did not run count what was used before.
//
// Promise: A restart with other limits forgets nothing.
func TestRestartWithOtherLimits(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		limit string
		left  int64 // before 3 more are taken
	}{
		{"funnel 100, 1/d", 100}, {"funnel 1000, 1000/365d", 997}, {"window 50/365d", 44}, {"window 60/365d", 51},
		{"window 60/365d", 48}, {"sliding 60/300d", 45}, {"funnel 60, 1/d", 42},
	} {
		o := open(t, dir)
		o.set(c.limit)
		require.Equal(t, c.left, o.remaining("k"), "%d: %s", i, c.limit)
		require.True(t, o.take("k", 3).Allowed)
		o.close()
	}
	// Without a name its keys are kept, too.
	o := open(t, dir)
	require.NoError(t, o.Set(&limitfile.File{}, nil))
	o.close()
	o = open(t, dir)
	o.set("window 40/365d")
	assert.EqualValues(t, 40-21, o.remaining("k"))
}

// A process that is killed at any moment of a change to another engine forgets nothing, and what
// it had carried by then does not count twice. Each state of the files that is seen is loaded.
func TestKilledWhileKeysAreCarried(t *testing.T) {
	t.Run("no other saves", func(t *testing.T) { killWhileKeysAreCarried(t, false) })
	t.Run("other saves end at any moment", func(t *testing.T) { killWhileKeysAreCarried(t, true) })
}

func killWhileKeysAreCarried(t *testing.T, otherSaves bool) {
	dir, all := t.TempDir(), keys(300)
	o := open(t, dir)
	o.set("funnel 10, 1/d")
	for i, key := range all {
		require.True(t, o.take(key, int64(i%10)).Allowed)
	}
	for space := range o.keep.All() {
		require.NoError(t, space.Sync())
	}
	changed := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for otherSaves {
			for space := range o.keep.All() {
				assert.NoError(t, space.Sync())
			}
			select {
			case <-changed:
				return
			default:
			}
		}
	})
	wg.Go(func() {
		defer close(changed)
		o.set("window 10/365d")
		o.set("sliding 20/365d")
	})
	var seen []map[string][]byte
	last := map[string]os.FileInfo{}
	for ended := false; !ended; {
		select {
		case <-changed:
			ended = true
		default:
		}
		if at, texts := files(t, dir); !same(at, last) {
			last, seen = at, append(seen, texts)
		}
	}
	wg.Wait()
	for n, texts := range seen {
		killed := t.TempDir()
		for name, text := range texts {
			require.NoError(t, os.WriteFile(filepath.Join(killed, name), text, 0o600))
		}
		again := open(t, killed)
		again.set("window 15/365d")
		for i, key := range all {
			require.EqualValues(t, 15-i%10, again.remaining(key), "state %d of %d, key %s", n, len(seen), key)
		}
		again.close()
	}
}

// files returns the saved files of one moment, by their names.
func files(t *testing.T, dir string) (at map[string]os.FileInfo, texts map[string][]byte) {
	t.Helper()
	for {
		before := stat(t, dir)
		texts = map[string][]byte{}
		for name := range before {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // what was looked at is not the same any more
			}
			require.NoError(t, err)
			texts[name] = text
		}
		if same(stat(t, dir), before) {
			return before, texts
		}
	}
}

func stat(t *testing.T, dir string) map[string]os.FileInfo {
	t.Helper()
	at := map[string]os.FileInfo{}
	for _, pattern := range []string{"*.state", FileName} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, name := range names {
			info, err := os.Stat(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // its engine has ended
			}
			require.NoError(t, err)
			at[filepath.Base(name)] = info
		}
	}
	return at
}

func same(a, b map[string]os.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for name, info := range a {
		if b[name] == nil || !os.SameFile(info, b[name]) || !info.ModTime().Equal(b[name].ModTime()) {
			return false
		}
	}
	return true
}

// A process that was killed after it had carried some of the keys, and after calls had taken
// from these, carries the others.
func TestRestartFinishesAChange(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir)
	o.set("funnel 10, 1/d")
	for _, key := range keys(4) {
		require.True(t, o.take(key, 4).Allowed)
	}
	// What a process leaves that carried keys 0 and 1, and took 2 more from key 0.
	limit := file("window 10/365d").Limits["api"]
	space, err := o.keep.Of(limit)
	require.NoError(t, err)
	for key, used := range map[string]int64{"0": 6, "1": 4} {
		_, err := space.TakeWith(context.Background(), limit, Prefix("api")+key, used)
		require.NoError(t, err)
	}
	o.close()
	record := filepath.Join(dir, FileName)
	require.NoError(t, os.WriteFile(record, []byte(`{"api": {"limit": "window 10/365d", "from": "funnel 10, 1/d"}}`), 0o600))

	o = open(t, dir)
	o.set("window 10/365d")
	for key, left := range map[string]int64{"0": 4, "1": 6, "2": 6, "3": 6} {
		assert.Equal(t, left, o.remaining(key), key)
	}
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "from")
	o.set("funnel 10, 1/d")
	assert.EqualValues(t, 4, o.remaining("0"), "what stayed behind counts no more")
}

// A limit of which no keys are left is forgotten, and needs no engine.
func TestRecordForgetsLimitsWithoutKeys(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, FileName)
	require.NoError(t, os.WriteFile(record, []byte(`{"old": {"limit": "window 10/365d", "from": "funnel 10, 1/d"}}`), 0o600))
	o := open(t, dir)
	o.set("sliding 1/d")
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	assert.JSONEq(t, `{"api": {"limit": "sliding 1/d"}}`, string(text))
}

// What cannot be read ends the start, and what cannot be written refuses a change.
func TestRecordThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, FileName)
	keep, err := spaces.New(spaces.Config{Dir: dir})
	require.NoError(t, err)
	defer func() { assert.NoError(t, keep.Close()) }()
	for _, text := range []string{"{", `{"api": {"limit": "x"}}`, `{"api": {"limit": "funnel 1, 1/s", "from": "x"}}`} {
		require.NoError(t, os.WriteFile(record, []byte(text), 0o600))
		_, err := New(Config{Spaces: keep, File: record})
		assert.ErrorContains(t, err, record, text)
		assert.ErrorContains(t, err, "move the file away to begin with", text)
	}
	l, err := New(Config{Spaces: keep, File: filepath.Join(dir, "none", FileName)})
	require.NoError(t, err)
	o := &opened{l, t, keep}
	assert.ErrorContains(t, o.Set(file("funnel 1, 1/s"), nil), "cannot be written down")
	assert.Empty(t, o.All())
}

// BenchmarkChange carries keys to another engine and back, and reports the time for each.
func BenchmarkChange(b *testing.B) {
	for _, to := range []string{"funnel 20, 1/d", "window 10/365d"} {
		b.Run(to, func(b *testing.B) {
			o := open(b, "")
			o.set("funnel 10, 1/d")
			const n = 500_000
			for _, key := range keys(n) {
				o.take(key, 5)
			}
			b.ResetTimer()
			for i := range b.N {
				o.set([]string{to, "funnel 10, 1/d"}[i%2])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
		})
	}
}
