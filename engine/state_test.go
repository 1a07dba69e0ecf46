package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// restart saves an engine, ends it, lets time pass, and loads the state into another engine.
func restart[K comparable](t *testing.T, e *Engine[K], config Config, pass func(), more ...Option[K]) *Engine[K] {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, e.Save(&file))
	require.NoError(t, e.Close())
	pass()
	loaded, err := Load(&file, config, more...)
	require.NoError(t, err)
	return loaded
}

// A history is cut anywhere, for every policy and verb, limits of a call or of PolicyFor, and
// changed limits.
//
// Promise: A loaded engine answers as if it never stopped.
func TestLoadedEngineGoesOnAsIfItHadNeverStopped(t *testing.T) {
	for seed := range uint64(220) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareHistories(t, rand.New(rand.NewPCG(seed, 17))) })
		})
	}
}

// compareHistories compares a history with a cut one.
func compareHistories(t *testing.T, r *rand.Rand) {
	families := append(limitstest.Families(), limitstest.Budgets())
	limits := families[r.IntN(len(families))]
	unit := max(limits[0].Limit()/10, 1)
	one := func() policy.Policy { return limits[r.IntN(len(limits))] }
	config := Config{Policy: one(), MaxKeys: 100, Idle: time.Duration(1 + r.Int64N(int64(5*time.Second)))}
	hand := newHandClock()
	byHand := r.IntN(2) == 0
	if byHand {
		config.Clock = hand.Now
	}
	pass := func() {
		d := time.Duration(r.Int64N(int64(time.Millisecond) << r.IntN(14)))
		time.Sleep(d)
		hand.Advance(d)
	}
	var more []Option[string]
	chosen := r.IntN(4) == 0
	if chosen {
		own := one()
		more = append(more, PolicyFor(func(key string) policy.Policy {
			if key == "a" {
				return own
			}
			return nil
		}))
	}
	whole, err := New(config, more...)
	require.NoError(t, err)
	defer func() { check(t, whole) }()
	cut, err := New(config, more...)
	require.NoError(t, err)
	defer func() { check(t, cut) }()

	type pair struct{ whole, cut Reservation[string] }
	var held []pair
	for range 30 + r.IntN(60) {
		pass()
		key := string("abc"[r.IntN(3)])
		n := int64(r.IntN(4)) * unit
		patience := time.Duration(r.Int64N(int64(3 * time.Second)))
		limit := one()
		both := func(what string, call func(e *Engine[string]) any) {
			t.Helper()
			require.Equal(t, call(whole), call(cut), "%s of %d by %s under %v", what, n, key, whole.Limit())
		}
		switch r.IntN(12) {
		case 11:
			_, anchors := config.Policy.(policy.Anchored)
			if !byHand || anchors || chosen {
				continue
			}
			held = nil
			config.Policy = one()
			begun := time.Now()
			require.NoError(t, whole.SetPolicy(config.Policy))
			require.NoError(t, cut.SetPolicy(config.Policy))
			hand.Advance(time.Since(begun))
		case 0:
			both("Choke", func(e *Engine[string]) any { return e.Choke(key) })
		case 1, 2:
			both("Take", func(e *Engine[string]) any { return e.Take(key, n) })
		case 3:
			both("TakeWith", func(e *Engine[string]) any { return e.TakeWith(limit, key, n) })
		case 4, 5:
			p := pair{whole.Reserve(key, n, patience), cut.Reserve(key, n, patience)}
			require.Equal(t, p.whole.Decision, p.cut.Decision)
			held = append(held, p)
		case 6:
			if len(held) == 0 {
				continue
			}
			p := held[r.IntN(len(held))]
			p.whole.Keep(n)
			p.cut.Keep(n)
		case 7:
			n -= 2 * unit
			both("Refund", func(e *Engine[string]) any { return e.Refund(key, n) })
		case 8:
			if r.IntN(4) == 0 {
				both("Reset", func(e *Engine[string]) any { return e.Reset(key) })
			} else {
				to := one()
				both("ChangeLimit", func(e *Engine[string]) any { return e.ChangeLimit(key, limit, to) })
			}
		case 9, 10:
			next := config
			// SetPolicy may wait, by package time, while the other clock stands, so limits of the
			// wall clock would differ.
			_, anchors := config.Policy.(policy.Anchored)
			change := byHand && !anchors && !chosen && r.IntN(3) == 0
			if change {
				next.Policy = one()
			}
			// Reservations are no state.
			held = nil
			cut = restart(t, cut, next, pass, more...)
			if change {
				begun := time.Now()
				require.NoError(t, whole.SetPolicy(next.Policy))
				// The wall clock went on while the change waited.
				hand.Advance(time.Since(begun))
				config = next
			}
		}
		both("Peek", func(e *Engine[string]) any { return e.Peek(key, 0) })
	}
}

// inFile returns a configuration with its own state file.
func inFile(t testing.TB, config Config) Config {
	t.Helper()
	config.State.Path = filepath.Join(t.TempDir(), "state")
	return config
}

// Whichever calls it comes between: on known keys, and on new keys on their way into the table. The
// file may also have refused calls, one for each caller at most.
//
// Promise: A clean stop saves all admitted units, also during `Close`.
func TestCloseSavesEveryUnitThatWasAdmitted(t *testing.T) {
	const callers, capacity = 4, 1 << 20
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	config := inFile(t, Config{Policy: funnel(capacity, 1, time.Minute), MaxKeys: 1 << 20, WhenUnavailable: Admit})
	// before has the units of keys that are used all the time.
	var before [8]int64
	for round := range rounds {
		e, err := New[string](config)
		require.NoError(t, err)
		var hot [8]atomic.Int64
		// fresh has the admitted new keys.
		var fresh [callers][]string
		var begun, done sync.WaitGroup
		begun.Add(callers)
		for c := range callers {
			done.Go(func() {
				for i := 0; ; i++ {
					if i == 50 {
						begun.Done()
					}
					key := i % len(hot)
					one := e.Choke(fmt.Sprintf("hot %d", key))
					if one {
						hot[key].Add(1)
					}
					name := fmt.Sprintf("new %d %d %d", round, c, i)
					other := e.Choke(name)
					if other {
						fresh[c] = append(fresh[c], name)
					}
					if !one && !other {
						return
					}
				}
			})
		}
		begun.Wait()
		require.NoError(t, e.Close())
		done.Wait()

		e, err = New[string](config)
		require.NoError(t, err)
		for i := range hot {
			used := int64(capacity) - e.Peek(fmt.Sprintf("hot %d", i), 0).Remaining
			want := before[i] + hot[i].Load()
			require.GreaterOrEqual(t, used, want, "units of key %d were forgiven", i)
			require.LessOrEqual(t, used, want+callers)
			before[i] = used
		}
		for _, names := range fresh {
			for _, name := range names {
				require.EqualValues(t, capacity-1, e.Peek(name, 0).Remaining, "a new key was forgotten")
				e.Reset(name)
			}
		}
		require.NoError(t, e.Close())
	}
}

// stringCodec writes keys as they are, and calls first before each.
func stringCodec(first func()) Option[string] {
	return KeyCodec("string", func(dst []byte, key string) ([]byte, error) {
		first()
		return append(dst, key...), nil
	}, func(src []byte) (string, error) { return string(src), nil })
}

// Promise: With a state, `Close` ends waiting calls and refuses later calls.
func TestClosedEngineWithAStateRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, inFile(t, Config{Policy: funnel(2, 1, time.Hour)}))
		require.True(t, e.Take("known", 2).Allowed)
		waited := make(chan error, 1)
		go func() { waited <- e.Wait(t.Context(), "known", 1) }()
		synctest.Wait()
		require.NoError(t, e.Close())
		require.ErrorIs(t, <-waited, ErrClosed)
		for _, key := range []string{"known", "new"} {
			require.False(t, e.Choke(key))
			require.Equal(t, policy.Decision{Limit: 2, RetryAfter: defaultOpenTimeout}, e.Take(key, 1))
			require.Equal(t, policy.Never, e.Take(key, 3).RetryAfter)
			require.False(t, e.Refund(key, -1).Allowed)
			require.False(t, TakeAll(e.Claim(key, 1)).Allowed)
		}
		require.ErrorIs(t, e.Save(io.Discard), ErrClosed)
		require.ErrorIs(t, e.Health(), ErrClosed)
	})
}

// A hanging save shows in UnsavedSince from New on, and in Health after three times Every.
func TestSaveThatHangsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, release := make(chan struct{}), make(chan struct{})
		hang := sync.OnceFunc(func() {
			close(hangs)
			<-release
		})
		config := inFile(t, Config{Policy: funnel(10, 1, time.Hour), State: State{Every: time.Minute}})
		opened := time.Now()
		e, err := New(config, stringCodec(hang))
		require.NoError(t, err)
		free := sync.OnceFunc(func() { close(release) })
		defer func() {
			free()
			assert.NoError(t, e.Close())
		}()
		require.True(t, e.Choke("a"))
		<-hangs
		require.Equal(t, time.Minute, time.Since(opened))
		time.Sleep(3 * time.Minute)
		require.NoError(t, e.Health(), "saves do not fail for long yet, so Health must be nil")
		time.Sleep(1)
		require.ErrorIs(t, e.Health(), ErrUnsaved)
		require.ErrorContains(t, e.Health(), "a save has been under way for 3m0s")
		s := e.Stats()
		require.True(t, s.UnsavedSince.Equal(opened), "%v", s.UnsavedSince)
		require.True(t, s.SavedAt.IsZero(), "%v", s.SavedAt)

		free()
		synctest.Wait()
		require.NoError(t, e.Health())
		s = e.Stats()
		require.True(t, s.UnsavedSince.Equal(opened.Add(time.Minute)), "%v", s.UnsavedSince)
		require.True(t, s.UnsavedSince.Equal(s.SavedAt), "%v", s.SavedAt)
	})
}

// Health counts the state's age from the beginning of its last save, which may lack later units.
func TestAgeOfASaveCountsFromItsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := inFile(t, Config{Policy: funnel(10, 1, time.Hour), State: State{Every: time.Minute}})
		e, err := New(config, stringCodec(sync.OnceFunc(func() { time.Sleep(2 * time.Minute) })))
		require.NoError(t, err)
		defer func() { assert.NoError(t, e.Close()) }()
		require.True(t, e.Choke("a"))
		// The save began after the first minute, and ends now.
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2*time.Minute, e.Stats().SaveTook)
		folder := filepath.Dir(config.State.Path)
		require.NoError(t, os.Rename(folder, folder+" away"))
		defer func() { assert.NoError(t, os.Rename(folder+" away", folder)) }()
		// The next save fails. The last began 3 minutes ago.
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Error(t, e.Stats().SaveError)
		require.NoError(t, e.Health(), "saves do not fail for long yet, so Health must be nil")
		time.Sleep(1)
		require.ErrorIs(t, e.Health(), ErrUnsaved)
	})
}

// At Close, and from time to time for a process that is killed.
func TestStateIsKeptInTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := inFile(t, Config{Policy: funnel(10, 1, time.Hour), State: State{Every: time.Minute}})
		e, err := New[string](config)
		require.NoError(t, err)
		require.Zero(t, e.Stats().SavedAt)
		require.True(t, e.Take("a", 4).Allowed)
		begun := time.Now().Add(time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		s := e.Stats()
		require.True(t, s.SavedAt.Equal(begun), "%v", s.SavedAt)
		require.Equal(t, 1, s.Saved)
		require.NoError(t, s.SaveError)
		saved := must.Get(os.ReadFile(config.State.Path))

		require.True(t, e.Take("a", 1).Allowed)
		require.True(t, e.Take("b", 10).Allowed)
		require.NoError(t, e.Close())
		time.Sleep(time.Hour)
		e, err = New[string](config)
		require.NoError(t, err)
		a := e.Peek("a", 0)
		require.EqualValues(t, 6, a.Remaining)
		require.Equal(t, 4*time.Hour-time.Minute, a.ResetAfter)
		require.EqualValues(t, 1, e.Peek("b", 0).Remaining)
		require.Equal(t, 2, e.Len())
		require.NoError(t, e.Close())

		// The file as it was before the process was killed.
		require.NoError(t, os.WriteFile(config.State.Path, saved, 0o600))
		e = open[string](t, config)
		require.EqualValues(t, 7, e.Peek("a", 0).Remaining)
		require.EqualValues(t, 10, e.Peek("b", 0).Remaining)
	})
}

// Promise: Two engines never share a state file.
func TestStateIsForOneEngine(t *testing.T) {
	config := inFile(t, Config{Policy: funnel(1, 1, time.Hour)})
	e, err := New[string](config)
	require.NoError(t, err)
	_, err = New[string](config)
	require.ErrorIs(t, err, ErrLocked)
	require.True(t, e.Choke("a"))
	require.NoError(t, e.Close())
	e = open[string](t, config)
	require.False(t, e.Choke("a"))
}

// A save that Close gave up may still replace the file, which stays locked until then.
func TestFileStaysLockedUntilASaveThatWasGivenUpHasEnded(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			hangs, release := make(chan struct{}), make(chan struct{})
			config := inFile(t, Config{Policy: funnel(10, 1, time.Hour), State: State{Every: time.Minute}})
			e, err := New(config, stringCodec(func() {
				close(hangs)
				<-release
				if dies {
					runtime.Goexit()
				}
			}))
			require.NoError(t, err)
			require.True(t, e.Choke("a"))
			<-hangs
			err = e.Close()
			require.ErrorIs(t, err, ErrAbandoned)
			require.ErrorIs(t, err, errSaving)
			require.ErrorContains(t, err, config.State.Path)
			_, err = New[string](config)
			require.ErrorIs(t, err, ErrLocked)
			close(release)
			synctest.Wait()
			require.NoFileExists(t, config.State.Path, "the engine was closed before that save ended, so there must be no file")
			next, err := New[string](config)
			require.NoError(t, err)
			require.NoError(t, next.Close())
		})
	}
}

// Promise: A save that panics is tried again.
func TestSaveThatPanicsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		limit := &hooked{Policy: funnel(10, 1, time.Hour), fresh: func() {
			if panics.Load() {
				panic("fresh")
			}
		}}
		config := inFile(t, Config{Policy: limit, State: State{Every: time.Minute}})
		e, err := New[string](config)
		require.NoError(t, err)
		require.True(t, e.Choke("a"))
		synctest.Wait()
		panics.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		panics.Store(false)
		require.ErrorIs(t, e.Stats().SaveError, errDied)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, e.Stats().SaveError)
		require.Equal(t, 1, e.Stats().Saved)
		require.NoError(t, e.Close())
	})
}

// The error says why, and the next New may have the file.
//
// Promise: A damaged file, or another limit's, is an error and stays unchanged.
func TestFailedLoadChangesNothing(t *testing.T) {
	good := Config{Policy: funnel(10, 1, time.Hour)}
	e, err := New[string](good)
	require.NoError(t, err)
	for i := range 10_000 {
		require.True(t, e.Choke(fmt.Sprint("key ", i)))
	}
	var saved bytes.Buffer
	require.NoError(t, e.Save(&saved))
	require.NoError(t, e.Close())
	file := saved.Bytes()
	flipped := bytes.Clone(file)
	flipped[len(flipped)/2] ^= 1

	for _, c := range []struct {
		name  string
		file  []byte
		limit policy.Policy
		says  []string
	}{
		{"empty", nil, good.Policy, []string{"byte 0"}},
		{"cut", file[:len(file)-1], good.Policy, []string{"ends"}},
		{"cut in the middle", file[:len(file)/2], good.Policy, []string{"ends"}},
		{"flipped", flipped, good.Policy, []string{"checksum"}},
		{"longer", append(bytes.Clone(file), 0), good.Policy, []string{"behind the end"}},
		{"another family", file, policy.Must(policy.FixedWindow(10, time.Hour)), []string{good.Policy.String(), "10", "State.Fresh"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := inFile(t, Config{Policy: c.limit, Name: "api"})
			require.NoError(t, os.WriteFile(config.State.Path, c.file, 0o600))
			_, err := New[string](config)
			require.ErrorIs(t, err, ErrState)
			for _, says := range append(c.says, config.State.Path, `engine "api"`, "move the file away") {
				require.ErrorContains(t, err, says)
			}
			_, err = New[string](config)
			require.ErrorIs(t, err, ErrState, "the file must not be locked any more")
			left := must.Get(os.ReadFile(config.State.Path))
			require.True(t, bytes.Equal(c.file, left), "the file was changed")

			config.State = State{}
			_, err = Load[string](bytes.NewReader(c.file), config)
			require.ErrorIs(t, err, ErrState)
		})
	}
	_, err = Load[int](bytes.NewReader(file), good)
	require.ErrorIs(t, err, ErrState)
	require.ErrorContains(t, err, "its keys are string")
	broken := errors.New("broken")
	_, err = Load[string](io.MultiReader(bytes.NewReader(file[:len(file)/2]), brokenEnd{broken}), good)
	require.ErrorIs(t, err, broken)
	good.State.Path = "x"
	_, err = Load[string](bytes.NewReader(file), good)
	require.ErrorContains(t, err, "Config.State")
}

// brokenEnd is a reader and a writer that fails.
type brokenEnd struct{ err error }

func (f brokenEnd) Read([]byte) (int, error)  { return 0, f.err }
func (f brokenEnd) Write([]byte) (int, error) { return 0, f.err }

// Promise: `State.Fresh` sets another limit's file aside, a damaged file never.
func TestFreshSetsTheFileAside(t *testing.T) {
	config := inFile(t, Config{Policy: funnel(10, 1, time.Hour)})
	path := config.State.Path
	e, err := New[string](config)
	require.NoError(t, err)
	require.True(t, e.Choke("a"))
	require.NoError(t, e.Close())
	funnels := must.Get(os.ReadFile(path))

	config.State.Fresh = true
	config.Policy = policy.Must(policy.FixedWindow(10, time.Hour))
	e, err = New[string](config)
	require.NoError(t, err)
	require.EqualValues(t, 10, e.Peek("a", 0).Remaining)
	require.True(t, e.Choke("a"))
	require.NoError(t, e.Close())
	old := must.Get(os.ReadFile(path + ".old"))
	require.Equal(t, funnels, old)

	ints, err := New[int](config)
	require.NoError(t, err)
	require.NoError(t, ints.Close())
	_, err = os.Stat(path + ".old.2")
	require.NoError(t, err)
	old = must.Get(os.ReadFile(path + ".old"))
	require.Equal(t, funnels, old, "the first file must still be there")

	require.NoError(t, os.WriteFile(path, []byte("something else"), 0o600))
	_, err = New[int](config)
	require.ErrorIs(t, err, ErrState)
}

// Promise: Beyond `MaxKeys` a load keeps keys that owe most; others are forgiven.
func TestLoadKeepsTheKeysThatOweMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(1000, 1, time.Second)}
		e, err := New[int](config)
		require.NoError(t, err)
		order := rand.Perm(500)
		for _, i := range order {
			require.True(t, e.Take(i, int64(i+1)).Allowed)
		}
		config.MaxKeys = 100
		e = restart(t, e, config, func() {})
		defer check(t, e)
		require.Equal(t, 100, e.Len())
		require.EqualValues(t, 400, e.Stats().Forgiven)
		for key, d := range e.All() {
			require.GreaterOrEqual(t, key, 400)
			require.EqualValues(t, 1000-key-1, d.Remaining)
		}
	})
}

// Promise: Keys as good as new are neither saved nor loaded.
func TestFreshKeysAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(10, 1, time.Second), Idle: time.Hour}
		e, err := New[int](config)
		require.NoError(t, err)
		for i := range 10 {
			require.True(t, e.Take(i, int64(i+1)).Allowed)
		}
		require.True(t, e.Choke(10))
		e.Reset(10)
		time.Sleep(3 * time.Second)
		n, err := e.save(io.Discard)
		require.NoError(t, err)
		require.Equal(t, 7, n.keys)
		e = restart(t, e, config, func() { time.Sleep(2 * time.Second) })
		defer check(t, e)
		require.Equal(t, 5, e.Len())
	})
}

// Stats reports them at once, Health when they last. The next success mends both.
//
// Promise: `Stats` shows failed saves, and `Health` lasting failures.
func TestFailingSavesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := inFile(t, Config{Policy: funnel(10, 1, time.Hour), State: State{Every: time.Minute}})
		folder := filepath.Dir(config.State.Path)
		e, err := New[string](config)
		require.NoError(t, err)
		require.True(t, e.Choke("a"))
		away := folder + " away"
		require.NoError(t, os.Rename(folder, away))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.ErrorIs(t, e.Stats().SaveError, os.ErrNotExist)
		require.NoError(t, e.Health(), "saves do not fail for long yet, so Health must be nil")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, e.Health(), ErrUnsaved)
		require.ErrorIs(t, e.Health(), os.ErrNotExist)
		require.ErrorContains(t, e.Health(), "none has succeeded since the engine began, 4m0s ago: ")
		require.True(t, e.Choke("a"))

		require.NoError(t, os.Rename(away, folder))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, e.Health())
		require.NoError(t, e.Stats().SaveError)
		require.Equal(t, 1, e.Stats().Saved)

		require.NoError(t, os.Rename(folder, away))
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		require.ErrorContains(t, e.Health(), "the last save that succeeded began 4m0s ago: ")
		err = e.Close()
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, config.State.Path)
		require.ErrorIs(t, e.Close(), os.ErrNotExist, "a second Close must return the same error")
		require.NoError(t, os.Rename(away, folder))
		e = open[string](t, config)
		require.EqualValues(t, 8, e.Peek("a", 0).Remaining, "the last save must still be there")
	})
}

// Promise: A key that cannot be saved is counted and hinders no other.
func TestKeysThatCannotBeSavedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := KeyCodec("number", func(dst []byte, key float64) ([]byte, error) {
			switch key {
			case 1:
				return nil, errors.New("refused")
			case 2:
				panic("refused")
			case 3:
				return make([]byte, statefile.MaxKey+1), nil
			}
			return fmt.Append(dst, key), nil
		}, func(src []byte) (key float64, err error) {
			_, err = fmt.Sscan(string(src), &key)
			return key, err
		})
		config := inFile(t, Config{Policy: funnel(10, 1, time.Hour), State: State{Every: time.Minute}})
		e, err := New(config, codec)
		require.NoError(t, err)
		for key := range 5 {
			require.True(t, e.Choke(float64(key)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, e.Stats().Saved)
		require.EqualValues(t, 3, e.Stats().Unsaved)
		require.Zero(t, e.Stats().Restarts)
		require.NoError(t, e.Close())
		e, err = New(config, codec)
		require.NoError(t, err)
		require.Equal(t, 2, e.Len())
		require.EqualValues(t, 9, e.Peek(4, 0).Remaining)
		require.NoError(t, e.Close())

		_, err = New(config, KeyCodec("number", codecOf(codec).encode, func([]byte) (float64, error) { panic("decode") }))
		require.ErrorIs(t, err, ErrState)
		_, err = New[float64](config)
		require.ErrorContains(t, err, "engine.KeyCodec")
		var field *policy.FieldError
		_, err = New(config, KeyCodec[float64]("", nil, nil))
		require.ErrorAs(t, err, &field)
	})
}

func codecOf(o Option[float64]) *codec[float64] {
	var all options[float64]
	o(&all)
	return all.codec.(*codec[float64])
}

func TestBadStateSettingIsNamed(t *testing.T) {
	for _, s := range []State{{Every: time.Second}, {Fresh: true}, {Path: "x", Every: -1}} {
		var field *policy.FieldError
		_, err := New[string](Config{Policy: funnel(1, 1, time.Second), State: s})
		require.ErrorAs(t, err, &field, "%+v", s)
		require.Contains(t, field.Field, "State.")
	}
	_, err := New[string](Config{Policy: funnel(1, 1, time.Second), State: State{Path: filepath.Join(t.TempDir(), "no", "state")}})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// saveMeanwhile saves 20,000 keys, which have used 1 to 100 units, and calls meanwhile in the middle.
func saveMeanwhile(t *testing.T, e *Engine[string], all []string, meanwhile func()) (file *bytes.Buffer, err error) {
	t.Helper()
	for i, key := range all {
		require.True(t, e.Take(key, int64(1+i%100)).Allowed)
	}
	settled(t, e)
	file = &bytes.Buffer{}
	meanwhile = once(meanwhile)
	err = e.Save(writerFunc(func(block []byte) (int, error) {
		if file.Len() > 200_000 {
			meanwhile()
		}
		return file.Write(block)
	}))
	require.Greater(t, file.Len(), 200_000)
	return file, err
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// Promise: A change during a save misreads no word.
func TestSaveWhileThePolicyChanges(t *testing.T) {
	next, hand, all := funnel(10, 1, time.Minute), newHandClock(), keys(20_000)
	hand.Advance(time.Hour)
	e := open[string](t, Config{Policy: funnel(100, 1, time.Hour), Clock: hand.Now})
	file, err := saveMeanwhile(t, e, all, func() { assert.NoError(t, e.SetPolicy(next)) })
	require.NoError(t, err)
	loaded := loadState(t, file, Config{Policy: next, Clock: hand.Now})
	// The wall clock has gone on since, so turn the other back.
	for _, key := range all {
		one, other := e.Peek(key, 0), loaded.Peek(key, 0)
		require.Equal(t, next.Limit(), one.Limit)
		require.Equal(t, one.Remaining, other.Remaining)
		require.InDelta(t, float64(one.ResetAfter), float64(other.ResetAfter), float64(20*time.Second))
	}
}

// Promise: `Load` refuses a save that `Close` overtook.
func TestSaveThatIsOvertakenByCloseIsNone(t *testing.T) {
	config := Config{Policy: funnel(100, 1, time.Hour)}
	e := open[string](t, config)
	file, err := saveMeanwhile(t, e, keys(20_000), func() { assert.NoError(t, e.Close()) })
	require.ErrorIs(t, err, ErrClosed)
	_, err = Load[string](file, config)
	require.ErrorIs(t, err, ErrState)
	require.ErrorIs(t, err, statefile.ErrCorrupt)
}

func TestSaveReturnsTheWritersError(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(100, 1, time.Hour), Name: "api"})
	broken := errors.New("broken")
	err := e.Save(brokenEnd{broken})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, `engine "api"`)
}

// Another default neither takes from keys with chosen limits nor gives to them.
func TestAnotherDefaultKeepsTheUseOfPlans(t *testing.T) {
	for _, family := range [][4]string{
		{"funnel 10, 10/h", "funnel 20, 20/h", "funnel 1000, 1000/h", "funnel 1000, 100/h"},
		{"queue 10, 10/h", "queue 20, 20/h", "queue 1000, 1000/h", "queue 100, 100/h"},
		{"window 10/h", "window 20/h", "window 1000/h", "window 100/h"},
		{"sliding 10/h", "sliding 20/h", "sliding 1000/h", "sliding 100/h"},
		{"window 10/month in UTC", "window 20/month from 5 in UTC", "window 1000/month from 20 in UTC", "window 100/month from 31 in UTC"},
	} {
		for _, plan := range family[2:] {
			for from := range 2 {
				synctest.Test(t, func(t *testing.T) {
					chosen := PolicyFor(func(string) policy.Policy { return parsed(t, plan) })
					config := Config{Policy: parsed(t, family[from]), uncounted: true}
					e, err := New(config, chosen)
					require.NoError(t, err)
					require.True(t, e.Take("key", 60).Allowed)
					want := e.Peek("key", 0)
					config.Policy = parsed(t, family[1-from])
					e = restart(t, e, config, func() {}, chosen)
					defer func() { check(t, e) }()
					assert.Equal(t, want, e.Peek("key", 0), "%s from %s to %s", plan, family[from], family[1-from])
				})
			}
		}
	}
}

// Promise: Each limit of a `Tiered` has its own file.
func TestTieredKeepsItsState(t *testing.T) {
	hours := policy.Must(policy.FixedWindow(30, time.Hour))
	config := inFile(t, Config{Policy: funnel(10, 1, time.Hour)})
	mistaken := config
	mistaken.Policy = funnel(1, 1, time.Hour)
	for left := int64(9); left >= 7; left-- {
		e, err := NewTiered[string](config, funnel(20, 1, time.Hour), hours)
		require.NoError(t, err)
		require.EqualValues(t, left, e.Take("a", 1).Remaining)
		require.EqualValues(t, left+20, e.engines[2].Peek("a", 0).Remaining)
		require.NoError(t, e.Close())
		for _, further := range [][]policy.Policy{{hours, nil}, {funnel(1, 1, time.Hour), funnel(1, 1, time.Hour)}} {
			_, err = NewTiered[string](mistaken, further...)
			require.Error(t, err)
		}
	}
}

// Promise: An unhealthy engine saves at `Close`.
func TestUnhealthyEngineSavesAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := inFile(t, Config{Policy: funnel(10, 1, time.Hour)})
		e := failing(t, config, func(e *Engine[string]) { require.True(t, e.Choke("a")) })
		require.True(t, e.Choke("a"))
		require.NoError(t, e.Close())
		e = open[string](t, config)
		require.EqualValues(t, 8, e.Peek("a", 0).Remaining)
	})
}

// A Cancel after a restart gives back no more than before.
func TestForeignTurnsAreSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(2, 1, time.Hour)}
		other := PolicyFor(func(key string) policy.Policy {
			if key == "foreign" {
				return funnel(3, 1, time.Hour)
			}
			return nil
		})
		e, err := New(config, other)
		require.NoError(t, err)
		for range 4 {
			require.True(t, e.Reserve("own", 1, 24*time.Hour).Allowed)
			require.True(t, e.Reserve("foreign", 1, 24*time.Hour).Allowed)
		}
		e = restart(t, e, config, func() {}, other)
		defer check(t, e)
		for _, key := range []string{"own", "foreign"} {
			hash, _ := e.cell.Hash(key)
			require.Equal(t, key == "foreign", e.table.View().Look(hash, key).HasForeignTurn())
		}
	})
}
