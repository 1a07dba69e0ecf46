package limitfile

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/filewatch"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// harness is a file with the reports of its reloads.
type harness struct {
	t    *testing.T
	path string
	*File
	reports chan report
}

// report is what OnReload was called with.
type report struct {
	changes []Change
	err     error
}

func open(t *testing.T, text string) *harness {
	t.Helper()
	h := &harness{t: t, path: filepath.Join(t.TempDir(), "limits.conf"), reports: make(chan report, 100)}
	h.write(text)
	file, err := Open(h.path, Options{OnReload: func(changes []Change, err error) { h.reports <- report{changes, err} }})
	require.NoError(t, err)
	h.File = file
	t.Cleanup(func() { assert.NoError(t, file.Close()) })
	return h
}

// write writes the file as its page advises.
func (h *harness) write(text string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(h.path+".new", []byte(text), 0o600))
	require.NoError(h.t, os.Rename(h.path+".new", h.path))
}

// reload writes the file, and returns the changes as text.
func (h *harness) reload(text string) (changes string, err error) {
	h.t.Helper()
	h.write(text)
	err = h.Reload(h.t.Context())
	select {
	case r := <-h.reports:
		for _, c := range r.changes {
			changes += c.String() + "\n"
		}
		assert.Equal(h.t, err, r.err)
	default:
	}
	return changes, err
}

// take takes units one by one, and returns how many were admitted.
func take(t *testing.T, l limits.Limiter[string], key string, n int) (admitted int) {
	t.Helper()
	for range n {
		a, err := l.Admit(t.Context(), key, 1)
		require.NoError(t, err)
		if a.Allowed {
			admitted++
		}
	}
	return admitted
}

func limiter(t *testing.T, h *harness, name string, keys ...Keys[string]) *Limiter[string] {
	t.Helper()
	l, err := Engine(h.File, name, keys...)
	require.NoError(t, err)
	return l
}

// Promise: A changed file of limits changes the limits of a running program, and what was used counts on.
func TestReloadKeepsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "per-user: window 10/h\nother: window 5/h")
		byUser, other := limiter(t, h, "per-user"), limiter(t, h, "other")
		assert.Equal(t, 10, take(t, byUser, "ann", 12))
		assert.Equal(t, 5, take(t, other, "ann", 12))
		changes, err := h.reload("per-user: window 20/h\nother: window 5/h")
		require.NoError(t, err)
		assert.Equal(t, "per-user: window 10/h -> window 20/h, 0 keys at their limit\n", changes)
		assert.Equal(t, 10, take(t, byUser, "ann", 12))
		assert.Zero(t, take(t, other, "ann", 1))
		changes, err = h.reload("other: window 5/h\nper-user: window 15/h")
		require.NoError(t, err)
		assert.Equal(t, "per-user: window 20/h -> window 15/h, 1 key at its limit; calls for 16 to 20 units are refused now\n", changes)
		assert.Equal(t, "window 15/h", byUser.LimitFor("ann").String())
		time.Sleep(time.Hour)
		assert.Equal(t, 15, take(t, byUser, "ann", 16))
	})
}

// Counts above a million take more of a word.
//
// Promise: A reload carries what was used from a window of up to a million units to a larger one, and back.
func TestReloadKeepsUseOfLargeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 1000000/h")
		l := limiter(t, h, "a")
		takes := func(n int64) bool {
			answer, err := l.Admit(t.Context(), "ann", n)
			require.NoError(t, err)
			return answer.Allowed
		}
		require.True(t, takes(999_999))
		for _, step := range []struct {
			limit string
			room  int64
		}{{"1000001", 2}, {"20000000", 19_000_000 - 1}, {"20000001", 1}, {"1000000", 0}} {
			_, err := h.reload("a: window " + step.limit + "/h")
			require.NoError(t, err)
			assert.False(t, takes(step.room+1), step.limit)
			assert.True(t, takes(step.room), step.limit)
		}
	})
}

// Promise: A file of limits with a fault is refused whole. Health says so, and the last good file holds.
func TestFaultyFileChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good = "a: window 10/h\nb: window 10/h"
		h := open(t, good)
		a, b := limiter(t, h, "a"), limiter(t, h, "b")
		for text, want := range map[string]string{
			"a: window 20/h\nb: window 10/x":  "limits.conf:2: b: ral: limit",
			"a: window 20/h\nb: sliding 10/h": "limits.conf:2: b: keys count under",
			"a: window 20/h":                  "limits.conf: b: a limiter of this name is in use",
			"":                                "limits.conf: it has no limits, and the file before had 2",
			"# all in a comment":              "limits.conf: it has no limits, and the file before had 2",
			"a: window 20/h\n":                "b: a limiter of this name is in use",
			"a: window 20/h\nb: window 10/h\n plan x: window /h": "limits.conf:3: b: plan x",
		} {
			_, err := h.reload(text)
			assert.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "\n", "each fault is told once")
			assert.Equal(t, err, h.Health())
			assert.Equal(t, "window 10/h", a.LimitFor("").String())
			assert.Equal(t, "window 10/h", b.LimitFor("").String())
		}
		_, err := h.reload(good)
		assert.NoError(t, err)
		assert.NoError(t, h.Health())
		require.NoError(t, os.Remove(h.path))
		assert.ErrorIs(t, h.Reload(t.Context()), os.ErrNotExist)
		require.NoError(t, os.Mkdir(h.path, 0o700))
		assert.ErrorContains(t, h.Reload(t.Context()), "it is no regular file, which alone is accepted")
		assert.Equal(t, "window 10/h", a.LimitFor("").String())
	})
}

// Promise: A fault of a file of limits is reported once, and its end is.
func TestEachResultIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 1/h")
		for _, step := range []struct{ text, fault string }{
			{"a: window", "limits.conf:1: a: "}, {"a: window", ""}, {"a: window # again", ""}, {"a: window 1/h", "none"}, {"a: window 1/h # again", ""},
		} {
			h.write(step.text)
			_ = h.Reload(t.Context())
			switch step.fault {
			case "":
				assert.Empty(t, h.reports, step.text)
			case "none":
				require.Len(t, h.reports, 1, step.text)
				assert.Equal(t, report{}, <-h.reports)
			default:
				require.Len(t, h.reports, 1, step.text)
				assert.ErrorContains(t, (<-h.reports).err, step.fault)
			}
		}
	})
}

// A program writes a file in parts, with pauses shorter than a look. Each part is a good file.
//
// Promise: A file of limits is taken once it is the same at two looks, also by Reload.
func TestHalfWrittenFileIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.conf")
		require.NoError(t, os.WriteFile(path, []byte("a: window 1/h"), 0o600))
		var reports atomic.Int64
		f, err := Open(path, Options{OnReload: func([]Change, error) { reports.Add(1) }})
		require.NoError(t, err)
		defer f.Close()
		time.Sleep(500 * time.Millisecond)
		text, results := "", make(chan error, 10)
		for i := range 10 {
			text += "limit-" + strings.Repeat("x", i) + ": sliding 5/10m\n"
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			go func() { results <- f.Reload(t.Context()) }()
			time.Sleep(900 * time.Millisecond)
		}
		assert.Zero(t, reports.Load())
		assert.Len(t, f.Limits(), 1)
		for range 10 {
			require.NoError(t, <-results)
		}
		assert.Len(t, f.Limits(), 10)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, reports.Load(), "an unchanged file is not reported")
	})
}

// Promise: A plan in a file of limits has its own units, and keys without a plan are held to the limit itself.
func TestPlansHoldTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 2/h\n plan gold: sliding 4/h")
		l := limiter(t, h, "a", Keys[string]{PlanOf: planOf})
		assert.Equal(t, 4, take(t, l, "gold:ann", 9))
		assert.Equal(t, 2, take(t, l, "free:bob", 9))
		changes, err := h.reload("a: window 2/h\n plan free: window 3/h")
		require.NoError(t, err)
		assert.Equal(t, "a: plan free: new, window 3/h\na: plan gold: sliding 4/h -> none\n", changes)
		assert.Equal(t, 1, take(t, l, "free:bob", 9), "2 of 3 were used under the limit itself")
		assert.Equal(t, 2, take(t, l, "gold:ann", 9), "a limit of another kind")
		_, err = h.reload("a: window 2/h\n plan gold: window 5/h")
		assert.ErrorContains(t, err, `limits.conf:2: a: plan gold: keys count under "sliding 4/h"`)
		_, err = h.reload("a: window 2/h\n plan gold: sliding 5/h")
		require.NoError(t, err)
		assert.Equal(t, 1, take(t, l, "gold:ann", 9), "its keys owe as much as when it left")
		plans := map[string]string{}
		for plan, limiter := range l.Limiters() {
			plans[plan] = limiter.(*engine.Engine[string]).Stats().Name
		}
		assert.Equal(t, map[string]string{"": "a", "gold": "a/plan/gold"}, plans)
	})
}

// planOf returns the part of a key before a colon.
func planOf(key string) string {
	plan, _, _ := strings.Cut(key, ":")
	return plan
}

// Promise: When a plan comes or goes, what its keys have used counts on under a limit of the same kind and period.
func TestKeysOfPlansThatComeAndGoKeepUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const own, gold, free = "a: window 10/h\n", " plan gold: window 20/h\n", " plan free: window 30/h\n"
		h := open(t, own)
		l := limiter(t, h, "a", Keys[string]{PlanOf: planOf})
		for _, step := range []struct {
			text                string
			gold, free, another int
		}{
			{own, 10, 10, 10},
			{own + gold, 10, 0, 0},
			{own + gold + free, 0, 20, 0},
			{own, 0, 0, 0},
			{own + free + " candidate: window 1/h\n", 0, 20, 0},
			{own + free + gold, 10, 0, 0},
			{"a: window 100/h\n", 80, 70, 90},
		} {
			_, err := h.reload(step.text)
			require.NoError(t, err)
			assert.Equal(t, step.gold, take(t, l, "gold:ann", 100), step.text)
			assert.Equal(t, step.free, take(t, l, "free:bob", 100), step.text)
			assert.Equal(t, step.another, take(t, l, "eve", 100), step.text)
		}
	})
}

// Promise: `Limiter.ChangePlan` makes what a key has used under a plan count under another plan, if the kinds and periods permit.
func TestChangePlanKeepsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 10/h\n plan gold: window 100/h\n plan other: sliding 10/h\n plan penal: window 100/h\n penalty: 1 in 1h, block 1h")
		plan := ""
		l := limiter(t, h, "a", Keys[string]{PlanOf: func(string) string { return plan }})
		change := func(to string) {
			l.ChangePlan("ann", plan, to)
			plan = to
		}
		assert.Equal(t, 10, take(t, l, "ann", 10))
		change("gold")
		assert.Equal(t, 50, take(t, l, "ann", 50))
		change("unknown")
		assert.Zero(t, take(t, l, "ann", 1), "60 units count as 10 of 10")
		change("gold")
		_, err := l.Admit(t.Context(), "ann", 95)
		require.NoError(t, err)
		assert.Zero(t, take(t, l, "ann", 1), "10 of 100 are used, and the key is blocked")
		change("penal")
		assert.Equal(t, 90, take(t, l, "ann", 91), "the block stays with its plan")
		change("other")
		assert.Equal(t, 10, take(t, l, "ann", 11), "another kind")
		plan = "penal"
		assert.Zero(t, take(t, l, "ann", 1), "its units stay with the first plan")
		l.ChangePlan("ann", "penal", "penal")
		x, err := l.Explain(t.Context(), "ann")
		require.NoError(t, err)
		assert.EqualValues(t, 100, x.Used)
	})
}

// Promise: Units of an in-flight limit of a file are released under the limit and plan of their take, after any reload.
func TestUnitsInFlightAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "jobs: in flight 2, 1m at most\n plan gold: in flight 3, 1m at most")
		plan := "gold"
		l := limiter(t, h, "jobs", Keys[string]{PlanOf: func(string) string { return plan }})
		hold := func(admitted int) (grants []limits.Grant) {
			t.Helper()
			for range 5 {
				g, err := l.Hold(t.Context(), limits.Call[string]{Key: "ann", N: 1})
				require.NoError(t, err)
				if g.Allowed {
					grants = append(grants, g)
				}
			}
			require.Len(t, grants, admitted)
			return grants
		}
		first := hold(3)
		l.ChangePlan("ann", "gold", "")
		plan = ""
		second := hold(2)
		changes, err := h.reload("jobs: in flight 4, 1m at most\n plan gold: in flight 5, 1m at most")
		require.NoError(t, err)
		assert.Equal(t, "jobs: in flight 2, 1m at most -> in flight 4, 1m at most, 0 keys at their limit\n"+
			"jobs: plan gold: in flight 3, 1m at most -> in flight 5, 1m at most, 0 keys at their limit\n", changes)
		second = append(second, hold(2)...)
		for i := range first {
			require.NoError(t, first[i].Release(t.Context()))
		}
		hold(0)
		for i := range second {
			require.NoError(t, second[i].Release(t.Context()))
		}
		hold(4)
		plan = "gold"
		hold(5)
	})
}

// The units of a key that stays under its limit come back as if no plan had changed. A limit that
// counts in parts of an hour needs a few minutes more.
func TestKeysThatKeepTheirPlanKeepTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: at most 2/h")
		l := limiter(t, h, "a", Keys[string]{PlanOf: planOf})
		assert.Equal(t, 2, take(t, l, "free:ann", 3))
		time.Sleep(30 * time.Minute)
		_, err := h.reload("a: at most 2/h\n plan gold: at most 3/h")
		require.NoError(t, err)
		l.ChangePlan("free:ann", "free", "")
		l.ChangePlan("free:ann", "", "")
		time.Sleep(40 * time.Minute)
		assert.Equal(t, 2, take(t, l, "free:ann", 3))
		l.ChangePlan("free:ann", "", "gold")
		time.Sleep(30 * time.Minute)
		l.ChangePlan("free:ann", "gold", "gold")
		time.Sleep(40 * time.Minute)
		l.ChangePlan("free:ann", "gold", "")
		assert.Equal(t, 2, take(t, l, "free:ann", 3))
	})
}

// Calls go on while a key moves between plans. A call that chose the first plan may take there afterwards.
func TestChangePlanUnderLoadForgetsNoUnit(t *testing.T) {
	h := open(t, "a: window 100M/d\n plan gold: window 200M/d")
	var plan atomic.Pointer[string]
	plans := []string{"", "gold"}
	plan.Store(&plans[0])
	l := limiter(t, h, "a", Keys[string]{PlanOf: func(string) string { return *plan.Load() }})
	var stop atomic.Bool
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				if a, err := l.Admit(context.Background(), "ann", 1); err == nil && a.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	for i := range 2000 {
		plan.Store(&plans[1-i%2])
		l.ChangePlan("ann", plans[i%2], plans[1-i%2])
	}
	stop.Store(true)
	callers.Wait()
	l.ChangePlan("ann", "gold", "")
	x, err := l.Explain(t.Context(), "ann")
	require.NoError(t, err)
	assert.Equal(t, admitted.Load(), x.Used)
}

// Promise: A candidate in a file of limits has no effect, and is counted.
func TestCandidateIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 5/h")
		l := limiter(t, h, "a")
		assert.Nil(t, l.Trial())
		_, err := h.reload("a: window 5/h\n candidate: sliding 2/h")
		require.NoError(t, err)
		assert.Equal(t, 5, take(t, l, "ann", 6))
		assert.EqualValues(t, limits.TrialStats{Admitted: 2, WouldRefuse: 3, Refused: 1}, l.Trial().Stats())
		_, err = h.reload("a: window 9/h\n candidate: sliding 4/h")
		require.NoError(t, err)
		assert.Equal(t, 4, take(t, l, "ann", 9))
		assert.EqualValues(t, 15, sum(l.Trial().Stats()), "the trial goes on")
		_, err = h.reload("a: window 9/h\n candidate: window 4/h")
		require.NoError(t, err)
		assert.Zero(t, sum(l.Trial().Stats()), "another kind is another trial")
		_, err = h.reload("a: window 9/h")
		require.NoError(t, err)
		assert.Nil(t, l.Trial())
		assert.Zero(t, take(t, l, "ann", 1))
	})
}

func sum(s limits.TrialStats) uint64 {
	return s.Admitted + s.Refused + s.WouldAdmit + s.WouldRefuse + s.Failed
}

// Promise: A limit in shadow refuses and delays no call, and counts the calls that it would.
func TestShadowRefusesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 2/h\n shadow: yes\nq: queue 5, 1/h\n shadow: yes")
		a, q := limiter(t, h, "a"), limiter(t, h, "q")
		assert.Equal(t, 5, take(t, a, "ann", 5))
		assert.EqualValues(t, 3, a.Passed())
		x, err := a.Explain(t.Context(), "ann")
		require.NoError(t, err)
		assert.Contains(t, x.String(), "2 of 2 used. A call is refused for 1h. The limit is in shadow: a call passes at once in any case.")
		began := time.Now()
		assert.Equal(t, 9, take(t, q, "ann", 9))
		assert.Zero(t, time.Since(began), "no call is delayed")
		assert.EqualValues(t, 8, q.Passed())
		outcome, err := limits.AskAll(t.Context(), 0, limits.NewClaim(a, limits.Call[string]{Key: "ann", N: 1}))
		require.NoError(t, err)
		assert.True(t, outcome.Allowed)
		_, err = h.reload("a: window 2/h\nq: queue 5, 1/h\n shadow: yes")
		require.NoError(t, err)
		assert.Zero(t, take(t, a, "ann", 1))
		x, err = a.Explain(t.Context(), "ann")
		require.NoError(t, err)
		assert.False(t, x.Shadow)
	})
}

// Promise: A reload while calls are under way forgets no unit and admits none too many.
func TestReloadsUnderLoadAreExact(t *testing.T) {
	h := &harness{t: t, path: filepath.Join(t.TempDir(), "limits.conf"), reports: make(chan report, 1)}
	h.write("a: window 10/h\n plan gold: window 10/h")
	var err error
	h.File, err = Open(h.path, Options{Every: time.Hour, OnReload: func(changes []Change, err error) { h.reports <- report{changes, err} }})
	require.NoError(t, err)
	defer h.File.Close()
	l := limiter(t, h, "a", Keys[string]{PlanOf: func(key string) string { return key }})
	keys := []string{"gold", "ann", "bob"}
	var admitted [3]atomic.Int64
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for !stop.Load() {
				for i, key := range keys {
					if a, err := l.Admit(context.Background(), key, 1); err == nil && a.Allowed {
						admitted[i].Add(1)
					}
				}
			}
		})
	}
	const last = 2020
	for limit := int64(20); limit <= last; limit += 10 {
		text := policy.Must(policy.FixedWindow(limit, time.Hour)).String()
		h.write("a: " + text + "\n plan gold: " + text)
		h.watch.Look()
		require.True(t, h.watch.Look(), "it was the same at two looks")
		require.NoError(t, h.Health())
		assert.Len(t, (<-h.reports).changes, 2)
	}
	stop.Store(true)
	callers.Wait()
	for i, key := range keys {
		admitted[i].Add(int64(take(t, l, key, last)))
		assert.EqualValues(t, last, admitted[i].Load(), key)
	}
}

// broken is an engine with faults, and counts.
type broken struct {
	*engine.Engine[string]
	fault  *atomic.Pointer[error]
	closed *atomic.Int64
	walks  *atomic.Int64
}

func (b broken) All() iter.Seq2[string, policy.Decision] {
	b.walks.Add(1)
	return b.Engine.All()
}

func (b broken) SetPolicy(p policy.Policy) error {
	if err := b.fault.Load(); err != nil {
		return *err
	}
	return b.Engine.SetPolicy(p)
}

func (b broken) Close() error {
	b.closed.Add(1)
	return b.Engine.Close()
}

// The other limits change, and the failed change is tried again.
func TestFailedChangeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 1/h\nb: window 1/h\n plan gold: window 1/h")
		var fault atomic.Pointer[error]
		var closed atomic.Int64
		construct := func(name string, limit policy.Policy, _ Limit) (Changeable[string], error) {
			switch limit.Limit() {
			case 666:
				return nil, errors.New("no such engine")
			case 667:
				return nil, &policy.FieldError{Of: "fleet.Config", Field: "Policy", Value: limit, Want: "a funnel"}
			case 777:
				return nil, nil
			}
			e, err := engine.New[string](engine.Config{Policy: limit})
			return broken{e, &fault, &closed, new(atomic.Int64)}, err
		}
		b, err := With(h.File, "b", nil, construct)
		require.NoError(t, err)
		a := limiter(t, h, "a")
		_, err = With(h.File, "b", nil, construct)
		assert.ErrorContains(t, err, "has a limiter already")
		_, err = With(h.File, "c", nil, construct)
		assert.ErrorContains(t, err, `has no limit "c"`)

		_, err = h.reload("a: window 2/h\nb: window 1/h\n plan gold: window 1/h\n plan new: window 1/h\n candidate: window 666/h")
		assert.ErrorContains(t, err, "limits.conf:5: b: candidate: no such engine")
		assert.EqualValues(t, 1, closed.Load(), "the new plan's limiter is closed again")
		_, err = h.reload("a: window 2/h\nb: window 1/h\n plan gold: window 1/h\n candidate: window 667/h")
		assert.EqualError(t, err, h.path+":4: b: candidate: the limit is window 667/h, want a funnel", "in the words of the file")
		_, err = h.reload("a: window 2/h\nb: window 1/h\n plan gold: window 1/h\n plan new: window 777/h")
		assert.ErrorContains(t, err, "limits.conf:4: b: plan new: its limiter is nil")
		assert.Equal(t, "window 1/h", a.LimitFor("").String())

		down := errors.New("it is down")
		fault.Store(&down)
		changes, err := h.reload("a: window 2/h\nb: window 2/h\n plan gold: window 1/h")
		assert.ErrorIs(t, err, down)
		assert.ErrorContains(t, err, "limits.conf:2: b: it is down")
		assert.Equal(t, "window 2/h", a.LimitFor("").String())
		assert.Equal(t, "window 1/h", b.LimitFor("").String())
		assert.Equal(t, "a: window 1/h -> window 2/h, 0 keys at their limit\n", changes, "the limits that have changed alone")
		fault.Store(nil)
		time.Sleep(5 * time.Second)
		assert.NoError(t, h.Health())
		assert.Equal(t, "window 2/h", b.LimitFor("").String())
		require.Len(t, h.reports, 1)
		later := <-h.reports
		require.NoError(t, later.err)
		require.Len(t, later.changes, 1)
		assert.Equal(t, "b: window 1/h -> window 2/h, 0 keys at their limit", later.changes[0].String())
	})
}

// Promise: A reload counts the keys of each changed limit and plan once, and looks at no other key.
func TestReloadGoesOnceThroughChangedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 1/h\n plan gold: window 1/h\n plan free: window 1/h\nb: window 1/h")
		walks := map[string]*atomic.Int64{}
		construct := func(name string, limit policy.Policy, _ Limit) (Changeable[string], error) {
			e, err := engine.New[string](engine.Config{Policy: limit})
			walks[name] = new(atomic.Int64)
			return broken{e, new(atomic.Pointer[error]), new(atomic.Int64), walks[name]}, err
		}
		for _, name := range []string{"a", "b"} {
			l, err := With(h.File, name, planOf, construct)
			require.NoError(t, err)
			assert.Equal(t, 1, take(t, l, "ann", 1))
		}
		for _, step := range []struct {
			text                  string
			own, gold, free, none int64
		}{
			{"a: window 2/h\n plan gold: window 2/h\n plan free: window 1/h\nb: window 1/h", 1, 1, 0, 0},
			{"a: window 2/h\n plan gold: window 2/h\n plan free: window 1/h\n warn-at: 0.5\nb: window 1/h", 1, 1, 0, 0},
			{"a: window 2/h\n plan gold: window 2/h\nb: window 1/h", 1, 1, 1, 0},
			{"a: window 2/h\n plan gold: window 3/h\n plan free: window 1/h\nb: window 1/h", 2, 2, 1, 0},
		} {
			_, err := h.reload(step.text)
			require.NoError(t, err)
			assert.Equal(t, step.own, walks["a"].Load(), step.text)
			assert.Equal(t, step.gold, walks["a/plan/gold"].Load(), step.text)
			assert.Equal(t, step.free, walks["a/plan/free"].Load(), step.text)
			assert.Equal(t, step.none, walks["b"].Load(), step.text)
		}
	})
}

// endless is an engine whose list has no end, or whose change ends only with the engine.
type endless struct {
	*engine.Engine[string]
	change chan struct{}
	closed chan struct{}
}

func (e endless) All() iter.Seq2[string, policy.Decision] {
	return func(yield func(string, policy.Decision) bool) {
		for yield("key", policy.Decision{}) {
			time.Sleep(time.Millisecond) // wall: none, since the clock is a bubble's
		}
	}
}

func (e endless) SetPolicy(p policy.Policy) error {
	select {
	case <-e.change:
		return nil
	case <-e.closed:
		return engine.ErrClosed
	}
}

func (e endless) Close() error {
	close(e.closed)
	return e.Engine.Close()
}

// Promise: File.Close interrupts a reload, also in the middle of a limit.
func TestCloseInterruptsAReload(t *testing.T) {
	const before = "a: window 1/h\n plan gold: window 1/h\nb: window 1/h"
	for place, after := range map[string]string{
		"change": strings.ReplaceAll(before, "1/h", "2/h"),
		"count":  strings.ReplaceAll(before, "1/h", "2/h"),
		"carry":  "a: window 1/h\nb: window 1/h",
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.conf")
			require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
			f, err := Open(path, Options{OnReload: func([]Change, error) { t.Error("the reload has not ended") }})
			require.NoError(t, err)
			change := make(chan struct{})
			if place != "change" {
				close(change)
			}
			for _, name := range []string{"a", "b"} {
				_, err := With(f, name, planOf, func(_ string, limit policy.Policy, _ Limit) (Changeable[string], error) {
					e, err := engine.New[string](engine.Config{Policy: limit})
					return endless{e, change, make(chan struct{})}, err
				})
				require.NoError(t, err)
			}
			require.NoError(t, os.WriteFile(path, []byte(after), 0o600))
			time.Sleep(time.Minute)
			require.NoError(t, f.Close(), place)
			require.NoError(t, f.Close(), "a second Close does nothing")
		})
	}
}

// Promise: A call of a limiter of a file allocates nothing in addition to the engine.
func TestCallsAllocateNothing(t *testing.T) {
	h := open(t, "a: window 1M/h\n plan gold: window 1M/h\nb: window 1/h\n shadow: yes")
	a, b := limiter(t, h, "a", Keys[string]{PlanOf: planOf}), limiter(t, h, "b")
	for _, l := range []*Limiter[string]{a, b} {
		for _, key := range []string{"gold:ann", "eve"} {
			assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = l.Admit(context.Background(), key, 1) }), key)
		}
	}
}

// Promise: File.Close closes the limiters of the file, and calls of Reload return.
func TestCloseEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, "a: window 1/h\n plan gold: window 1/h\nb: window 1/h")
		a := limiter(t, h, "a")
		result := make(chan error)
		go func() { result <- h.Reload(t.Context()) }()
		synctest.Wait()
		require.NoError(t, h.Close())
		assert.ErrorIs(t, <-result, engine.ErrClosed)
		assert.ErrorIs(t, h.Reload(t.Context()), engine.ErrClosed)
		for _, e := range a.Limiters() {
			assert.ErrorIs(t, e.(*engine.Engine[string]).Health(), engine.ErrClosed)
		}
		_, err := Engine[string](h.File, "b")
		assert.ErrorIs(t, err, engine.ErrClosed)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		h2 := open(t, "a: window 1/h")
		assert.ErrorIs(t, h2.Reload(ended), context.Canceled)
	})
}

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.conf")
	_, err := Open(path, Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("a: window"), 0o600))
	_, err = Open(path, Options{})
	var fault *Fault
	assert.ErrorAs(t, err, &fault)
	_, err = Open(path, Options{Every: time.Microsecond})
	assert.ErrorContains(t, err, "Every is 1µs, want 10ms or more")
	require.NoError(t, os.WriteFile(path, make([]byte, filewatch.MaxBytes+1), 0o600))
	_, err = Open(path, Options{})
	assert.ErrorContains(t, err, "it has more than 16 MiB, the most that is accepted")
}
