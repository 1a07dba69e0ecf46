package limits_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func recorded(t testing.TB, l limits.Limiter[string], c limits.RecordConfig) (r *limits.Recorder[string], path string) {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "record.log")
	}
	return must.Get(limits.Record(l, c)), c.Path
}

// Promise: A limits.Recorder writes each call, its instant, verdict and units, the end of each grant, and each refund, reset, block and change of the limit, to a file that others cannot read and that has no key.
func TestRecordHasEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(5, 1, time.Second))}))
		path := filepath.Join(t.TempDir(), "record.log")
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		r, _ := recorded(t, e, limits.RecordConfig{Path: path})
		begun := time.Now()
		time.Sleep(time.Second)
		_, err := r.Admit(ctx, "the key", 3)
		require.NoError(t, err)
		g, err := r.Hold(ctx, limits.Call[string]{Key: "the key", N: 2})
		require.NoError(t, err)
		refused, err := r.Hold(ctx, limits.Call[string]{Key: "the key", N: 4})
		require.NoError(t, err)
		assert.False(t, refused.Allowed)
		waited, err := r.Hold(ctx, limits.Call[string]{Key: "the key", N: 1, Patience: time.Minute})
		require.NoError(t, err)
		assert.True(t, waited.Allowed)
		_, err = r.Admit(ctx, "the key", 0)
		require.NoError(t, err)
		require.NoError(t, refused.Cancel(ctx))
		require.NoError(t, g.Settle(ctx, 1))
		require.NoError(t, g.Settle(ctx, 1))
		require.NoError(t, waited.Release(ctx))
		r.Refund("other", 2)
		r.Refund("other", -2)
		assert.True(t, r.Reset("the key"))
		require.NoError(t, r.Block("the key", time.Hour))
		require.NoError(t, r.SetPolicy(policy.Must(policy.Funnel(6, 1, time.Second))))
		require.Error(t, r.Block("the key", -1))
		require.Error(t, r.SetPolicy(policy.Must(policy.AtMost(6, time.Second))))
		assert.EqualValues(t, 6, e.Limit().Limit())
		assert.Equal(t, time.Hour, e.Blocked("the key"))
		require.NoError(t, r.Close())
		_, err = r.Admit(ctx, "late", 1)
		require.NoError(t, err)
		assert.Equal(t, limits.RecordStats{Lost: 1}, r.Stats())
		require.NoError(t, e.Close())

		text := string(must.Get(os.ReadFile(path)))
		assert.NotContains(t, text, "key")
		assert.EqualValues(t, 0o600, must.Get(os.Stat(path)).Mode())
		key := strings.Fields(strings.Split(text, "\n")[1])[6]
		other := strings.Fields(strings.Split(text, "\n")[7])[6]
		assert.NotEqual(t, key, other)
		unixAfter := func(d time.Duration) int64 { return begun.Add(d).UnixNano() }
		var want strings.Builder
		fmt.Fprintf(&want, "ral %d start 0 0 0 \"funnel 5, 1/s\"\n", unixAfter(0))
		for _, line := range []struct {
			since time.Duration
			rest  string
		}{
			{1, "take 200 3 0 " + key}, {1, "take 200 2 1 " + key}, {1, "take 429 4 0 " + key}, {2, "take 200 1 2 " + key}, {2, "end 200 1 1 0"}, {2, "release 200 0 2 0"},
			{2, "refund 200 2 0 " + other}, {2, "charge 200 2 0 " + other}, {2, "reset 200 0 0 " + key}, {2, "block 200 3600000000000 0 " + key}, {2, `limit 0 0 0 "funnel 5, 1/s -> funnel 6, 1/s"`},
		} {
			fmt.Fprintf(&want, "ral %d %s\n", unixAfter(line.since*time.Second), line.rest)
		}
		assert.Equal(t, want.String(), text)
	})
}

func TestRecordShowsKeysIfAsked(t *testing.T) {
	e := under(t, policy.Must(policy.Funnel(5, 1, time.Second)))
	r, path := recorded(t, e, limits.RecordConfig{ShowKeys: true})
	_, err := r.Admit(context.Background(), "a \n\"b\"", 1)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	assert.Regexp(t, `\nral \d+ take 200 1 0 "a \\n\\"b\\""\n$`, string(must.Get(os.ReadFile(path))))
}

// Promise: A limits.Recorder writes a line without a key for a key that cannot be hashed, that does not equal itself, or that is longer than `ral replay` reads.
func TestRecordLeavesOutKeysOfNoUse(t *testing.T) {
	for _, c := range []limits.RecordConfig{{}, {ShowKeys: true}} {
		e := must.Get(engine.New[any](engine.Config{Policy: policy.Must(policy.Funnel(5, 1, time.Second))}))
		c.Path = filepath.Join(t.TempDir(), "record.log")
		r := must.Get(limits.Record[any](e, c))
		keys := []any{[]int{1}, math.NaN(), [1]any{func() {}}}
		if c.ShowKeys {
			keys = append(keys, strings.Repeat("k", 1<<10))
		}
		for _, key := range keys {
			a, err := r.Admit(t.Context(), key, 1)
			require.NoError(t, err)
			assert.True(t, a.Allowed)
			r.Reset(key)
		}
		require.NoError(t, r.Close())
		require.NoError(t, e.Close())
		assert.Regexp(t, fmt.Sprintf(`^ral \d+ start 0 0 0 "funnel 5, 1/s"\n(ral \d+ take 200 1 0 \nral \d+ reset 200 0 0 \n){%d}$`, len(keys)), string(must.Get(os.ReadFile(c.Path))))
	}
}

// Promise: The files of a limits.Recorder are bounded in number and size, and nothing is lost without being counted.
func TestRecordIsBounded(t *testing.T) {
	r, path := recorded(t, under(t, policy.Must(policy.Funnel(5, 1, time.Second))), limits.RecordConfig{MaxBytes: 64 << 10, MaxFiles: 2})
	require.NoError(t, r.SetPolicy(policy.Must(policy.Funnel(6, 1, time.Second))))
	const calls = 12_000
	for range calls {
		_, err := r.Admit(context.Background(), "k", 1)
		require.NoError(t, err)
	}
	require.NoError(t, r.Close())
	files := must.Get(filepath.Glob(path + "*"))
	assert.Equal(t, []string{path, path + ".1", path + ".2"}, files)
	lines := 0
	for _, name := range files {
		text := string(must.Get(os.ReadFile(name)))
		assert.LessOrEqual(t, len(text), 64<<10)
		assert.Regexp(t, `^ral \d+ start 0 0 0 "funnel 6, 1/s"\n`, text, "each file begins with the limit in force")
		lines += strings.Count(text, " take ")
	}
	assert.Greater(t, lines, 1_000)
	assert.Less(t, lines+int(r.Stats().Lost), calls, "the oldest were removed")
}

// Promise: The record of a limits.Recorder has the number of lines that it lost, so that `ral replay` can tell it.
func TestRecordGoesOnAfterAFault(t *testing.T) {
	dir, away := filepath.Join(t.TempDir(), "dir"), filepath.Join(t.TempDir(), "away")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "record.log")
	r, _ := recorded(t, under(t, policy.Must(policy.Funnel(5, 1, time.Second))), limits.RecordConfig{Path: path, MaxBytes: 64 << 10, MaxFiles: 60})
	calls := 0
	write := func(least int, enough func() bool) {
		for n := 0; n < least || !enough(); n++ {
			_, err := r.Admit(context.Background(), "k", 1)
			require.NoError(t, err)
			calls++
		}
	}
	exists := func(name string) func() bool {
		return func() bool { _, err := os.Stat(name); return err == nil }
	}
	write(100, exists(path+".1"))
	require.NoError(t, os.Rename(dir, away))
	write(100, func() bool { return r.Stats().Err != nil })
	write(4_000, func() bool { return true })
	require.NoError(t, os.Rename(away, dir))
	files := func() int { return len(must.Get(filepath.Glob(path + "*"))) }
	before := files()
	write(100, func() bool { return files() > before })
	assert.ErrorContains(t, r.Close(), "ral: record: ")
	lines, noted := 0, 0
	for _, name := range must.Get(filepath.Glob(path + "*")) {
		text := string(must.Get(os.ReadFile(name)))
		assert.LessOrEqual(t, len(text), 64<<10)
		lines += strings.Count(text, " take ")
		for _, loss := range regexp.MustCompile(`(?m)^ral \d+ lost 0 (\d+) 0 0$`).FindAllStringSubmatch(text, -1) {
			noted += must.Get(strconv.Atoi(loss[1]))
		}
	}
	assert.Greater(t, lines, 1_000)
	assert.Equal(t, calls, lines+int(r.Stats().Lost))
	assert.EqualValues(t, r.Stats().Lost, noted, "the record has the number of the lost lines")
}

// slow is a limiter whose calls and changes take time, as those of an engine do while its writer is behind.
type slow struct {
	limits.Limiter[string]
	limit atomic.Pointer[policy.Policy]
	sleep func(time.Duration)
}

func (s *slow) Limit() policy.Policy { return *s.limit.Load() }

func (s *slow) SetPolicy(p policy.Policy) error {
	s.sleep(40 * time.Millisecond)
	s.limit.Store(&p)
	s.sleep(40 * time.Millisecond)
	return nil
}

func (s *slow) Admit(_ context.Context, _ string, n int64) (a limits.Answer, err error) {
	s.sleep(10 * time.Millisecond)
	a.Allowed = n <= s.Limit().Limit()
	return a, nil
}

// Promise: In the record of a limits.Recorder, a change of the limit stands before each call that the new limit decided and behind each call that the old limit decided, although both take time.
func TestChangeOfTheLimitStandsWhereItTookEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := policy.Must(policy.Funnel(1, 1, time.Hour)), policy.Must(policy.Funnel(2, 1, time.Hour))
		l := &slow{Limiter: broken{}, sleep: time.Sleep}
		l.limit.Store(&before)
		r, path := recorded(t, l, limits.RecordConfig{})
		var group sync.WaitGroup
		group.Go(func() {
			time.Sleep(100 * time.Millisecond)
			assert.NoError(t, r.SetPolicy(after))
			assert.NoError(t, r.SetPolicy(after))
		})
		for range 40 {
			time.Sleep(7 * time.Millisecond)
			group.Go(func() {
				_, err := r.Admit(t.Context(), "k", 2)
				assert.NoError(t, err)
			})
		}
		group.Wait()
		require.NoError(t, r.Close())
		lines := strings.Split(strings.TrimSpace(string(must.Get(os.ReadFile(path)))), "\n")[1:]
		// All instants have the same number of digits.
		slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) })
		var verdicts strings.Builder
		for _, line := range lines {
			verdicts.WriteString(strings.Fields(line)[3] + " ")
		}
		assert.Equal(t, strings.Repeat("429 ", 18)+"0 "+strings.Repeat("200 ", 22), verdicts.String())
	})
}

func TestRecordTellsFaults(t *testing.T) {
	e := under(t, policy.Must(policy.Funnel(5, 1, time.Second)))
	for want, c := range map[string]limits.RecordConfig{
		"Path is \"\"":           {},
		"MaxBytes is 1,":         {Path: "x", MaxBytes: 1},
		"MaxFiles is -1":         {Path: "x", MaxFiles: -1},
		"no such file or direct": {Path: filepath.Join(t.TempDir(), "none", "x")},
	} {
		r, err := limits.Record(e, c)
		assert.ErrorContains(t, err, want)
		assert.Nil(t, r)
	}
	_, err := limits.Record[string](nil, limits.RecordConfig{Path: "x"})
	assert.ErrorContains(t, err, "l is nil")
	r, _ := recorded(t, broken{}, limits.RecordConfig{})
	assert.Error(t, r.Block("k", time.Second))
	assert.Error(t, r.SetPolicy(nil))
	assert.False(t, r.Reset("k"))
	assert.Zero(t, r.Refund("k", 1))
	require.NoError(t, r.Close())
}

func TestRecorderKeepsTheContract(t *testing.T) {
	s := limitstest.Subject{
		Source: limits.SourceProcess, Promised: true, Turns: true,
		New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			r, _ := recorded(t, under(t, p), limits.RecordConfig{})
			t.Cleanup(func() { assert.NoError(t, r.Close()) })
			return r
		},
	}
	for _, c := range limitstest.Cases {
		t.Run(c.Name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { c.Run(t, s) }) })
	}
}

// Promise: A limits.Recorder allocates nothing in addition to its limiter.
func TestRecordAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	r, _ := recorded(t, under(t, policy.Must(policy.Funnel(1e6, 1e6, time.Second))), limits.RecordConfig{})
	defer func() { require.NoError(t, r.Close()) }()
	failed := false
	call := func() {
		_, err := r.Admit(ctx, "k", 1)
		g, holdErr := r.Hold(ctx, limits.Call[string]{Key: "k", N: 1})
		failed = failed || err != nil || holdErr != nil || g.Settle(ctx, 0) != nil
	}
	call()
	assert.Zero(t, testing.AllocsPerRun(2_000, call))
	assert.False(t, failed)
}

func BenchmarkRecord(b *testing.B) {
	ctx := context.Background()
	e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1e6, 1e6, time.Second))}))
	r, _ := recorded(b, e, limits.RecordConfig{})
	for name, l := range map[string]limits.Limiter[string]{"engine": e, "recorded": r} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Admit(ctx, "192.0.2.1", 1)
			}
		})
	}
	b.Log(r.Stats())
	_ = r.Close()
	_ = e.Close()
}
