package configured

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// stepping is a context that calls step whenever Set looks whether it has ended.
type stepping struct {
	context.Context
	step func()
}

func (s stepping) Err() error {
	s.step()
	return s.Context.Err()
}

// figures are limits by name, and usage the used units by limit and key. Every limit has room for
// all units of a history, and none comes back in it.
type (
	figures map[string]string
	usage   map[[2]string]int64
)

func randomFigures(rng *rand.Rand) figures {
	all := figures{}
	for _, name := range []string{"a", "b", "c"} {
		switch {
		// The limit is removed.
		case rng.IntN(6) == 0:
		case name == "c":
			all[name] = fmt.Sprintf("window %d/365d", 2000+rng.IntN(3))
		default:
			all[name] = fmt.Sprintf("funnel %d, %d/d", 2000+rng.IntN(3), 1+rng.IntN(3))
		}
	}
	return all
}

func (f figures) file(t testing.TB) *limitfile.File {
	text := "limits: {}\n"
	for _, name := range slices.Sorted(maps.Keys(f)) {
		text = strings.Replace(text, " {}", "", 1) + fmt.Sprintf("  %s: %s\n", name, f[name])
	}
	file, err := limitfile.Parse("limits.yaml", []byte(text))
	require.NoError(t, err)
	return file
}

// history is a server that changes its limits again and again, and is killed at steps of a change:
// a kill leaves what the directory has at that moment.
type history struct {
	*opened
	rng    *rand.Rand
	dir    string
	limits figures
	// used is the present usage.
	used usage
	// saved has the usage in each state file.
	saved  map[string]usage
	texts  map[string]string
	kills  []killed
	before figures
}

type killed struct {
	dir    string
	used   usage
	before figures
}

func (h *history) take(name string) {
	if _, ok := h.limits[name]; !ok {
		return
	}
	key, n := fmt.Sprint(h.rng.IntN(5)), 2+h.rng.Int64N(8)
	call := h.Begin()
	defer call.End()
	u, ok := call.Find([]byte(name), []byte(key))
	require.True(h.t, ok)
	d, err := u.Family.TakeWith(context.Background(), u.Limit, u.Key, n)
	require.NoError(h.t, err)
	require.True(h.t, d.Allowed)
	h.used[[2]string{name, key}] += n
}

// notice keeps the usage that each state file has, if it has been written since.
func (h *history) notice() {
	files, err := filepath.Glob(filepath.Join(h.dir, "*.state"))
	require.NoError(h.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(h.t, err)
		if h.texts[file] != string(text) {
			h.texts[file], h.saved[file] = string(text), maps.Clone(h.used)
		}
	}
}

func (h *history) sync() {
	for family := range h.keep.All() {
		if h.rng.IntN(2) == 0 {
			require.NoError(h.t, family.(families.InProcess).Sync())
		}
	}
	h.notice()
}

func (h *history) kill() {
	k := killed{h.t.TempDir(), usage{}, h.before}
	entries, err := os.ReadDir(h.dir)
	require.NoError(h.t, err)
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".lock") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(h.dir, entry.Name()))
		require.NoError(h.t, err)
		require.NoError(h.t, os.WriteFile(filepath.Join(k.dir, entry.Name()), text, 0o600))
	}
	for file, used := range h.saved {
		for key, n := range used {
			if strings.Contains(file, "window") == (key[0] == "c") {
				k.used[key] = n
			}
		}
	}
	h.kills = append(h.kills, k)
}

// change sets other limits. At each step calls, saves and kills may come, or the end.
func (h *history) change(to figures) (ended bool) {
	ctx, end := context.WithCancel(h.t.Context())
	defer end()
	h.before, h.limits = h.limits, to
	if h.before == nil {
		h.before = to
	}
	require.NoError(h.t, h.Set(stepping{ctx, func() {
		h.notice()
		switch h.rng.IntN(12) {
		case 0, 1, 2, 3:
			h.take(string('a' + rune(h.rng.IntN(3))))
		case 4, 5:
			h.sync()
		case 6:
			h.kill()
		case 7:
			if h.rng.IntN(6) == 0 {
				end()
			}
		}
	}}, to.file(h.t), nil))
	h.notice()
	h.check()
	return ctx.Err() != nil
}

func (h *history) check() {
	h.t.Helper()
	limits := maps.Collect(h.All())
	for key, n := range h.used {
		limit, found := limits[key[0]]
		call := h.Begin()
		u, ok := call.Find([]byte(key[0]), []byte(key[1]))
		require.Equal(h.t, found, ok)
		if ok {
			d, err := u.Family.TakeWith(context.Background(), u.Limit, u.Key, 0)
			require.NoError(h.t, err)
			require.Equal(h.t, n, limit.Limit.Limit()-d.Remaining, "%s of %v, before %v", key, h.limits, h.before)
		}
		call.End()
	}
}

// lives returns the directories that kills have left.
func lives(t *testing.T, rng *rand.Rand, from killed) (left []killed) {
	h := &history{
		opened: openIn(t, families.Config{Dir: from.dir, Every: 1000 * time.Hour}, filepath.Join(from.dir, FileName)),
		rng:    rng, dir: from.dir, used: maps.Clone(from.used), saved: map[string]usage{}, texts: map[string]string{},
	}
	h.notice()
	for i := range 3 {
		to := randomFigures(rng)
		if i == 0 && from.before != nil && rng.IntN(2) == 0 {
			// The operator takes the change back.
			to = from.before
		}
		if ended := h.change(to); ended {
			break
		}
		for range rng.IntN(6) {
			h.take(string('a' + rune(rng.IntN(3))))
		}
		if rng.IntN(3) == 0 {
			h.sync()
		}
	}
	h.close()
	h.notice()
	// The server ends without a kill.
	h.kill()
	return h.kills
}

// In both directions, since the next start may have the earlier limits again.
//
// Promise: After a kill at any step of a change each key counts, to the unit.
func TestKilledChangeGoesOn(t *testing.T) {
	seed := testenv.Seed(t)
	for n := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, n))
			left := []killed{{dir: t.TempDir(), used: usage{}}}
			for range 4 {
				rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
				var next []killed
				for _, one := range left[:min(len(left), 3)] {
					next = append(next, lives(t, rng, one)...)
				}
				left = next
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d, history %d", seed, n)
		}
	}
}

// Promise: A change of many limits reads all keys once, and SIGTERM ends it.
func TestChangeOfManyLimitsIsOneWalk(t *testing.T) {
	many := func(rate int) *limitfile.File {
		text := "limits:\n"
		for i := range 100 {
			text += fmt.Sprintf("  l%d: funnel 100, %d/d\n", i, rate)
		}
		f, err := limitfile.Parse("limits.yaml", []byte(text))
		require.NoError(t, err)
		return f
	}
	dir := t.TempDir()
	o := open(t, dir)
	require.NoError(t, o.Set(t.Context(), many(1), nil))
	left := func(name string) int64 {
		call := o.Begin()
		defer call.End()
		u, ok := call.Find([]byte(name), []byte("k"))
		require.True(t, ok)
		d, err := u.Family.TakeWith(t.Context(), u.Limit, u.Key, 10)
		require.NoError(t, err)
		return d.Remaining
	}
	for i := range 100 {
		assert.EqualValues(t, 90, left(fmt.Sprint("l", i)))
	}
	looks := 0
	require.NoError(t, o.Set(stepping{t.Context(), func() { looks++ }}, many(2), nil))
	assert.Equal(t, 100+1, looks, "each key, and before the record")
	assert.Empty(t, o.noted(), "notes take memory during a change only")

	looks = 0
	ctx, end := context.WithCancel(t.Context())
	require.NoError(t, o.Set(stepping{ctx, func() {
		if looks++; looks == 50 {
			end()
		}
	}}, many(4), nil))
	assert.Less(t, looks, 60)
	assert.Len(t, o.noted(), 49)
	assert.Equal(t, "funnel 100, 4/d", maps.Collect(o.All())["l7"].Limit.String())
	o.close()
	o = open(t, dir)
	require.NoError(t, o.Set(t.Context(), many(4), nil))
	for i := range 100 {
		assert.EqualValues(t, 80, left(fmt.Sprint("l", i)))
	}
}
