package engine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/await"
	"github.com/ral-limiter/ral/internal/keycodec"
	"github.com/ral-limiter/ral/internal/statefile"
	"github.com/ral-limiter/ral/policy"
)

// hashedKeys returns a configuration whose states name no keys.
func hashedKeys(config Config) Config {
	config.State.HashKeys = true
	return config
}

// A history over engines whose states name no keys is the one of an engine that never stopped, as
// in TestLoadedEngineGoesOnAsIfItHadNeverStopped.
func TestHashedStateGoesOnAsIfItHadNeverStopped(t *testing.T) {
	for seed := range repeated(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareHistories(t, rand.New(rand.NewPCG(uint64(seed), 18)), true) })
		})
	}
}

// Calls that open a key at once find its word, once: none is admitted above the limit, and none is
// refused below it. Meanwhile the limit is replaced, keys are saved and looked at.
func TestCallsThatRaceForAHashedKey(t *testing.T) {
	const capacity, before, callers = 10, 7, 8
	n := 3000
	if testing.Short() {
		n = 500
	}
	limits := []policy.Policy{funnel(capacity, 1, 1000*time.Hour), funnel(capacity, 1, 1001*time.Hour)}
	for _, changes := range []bool{false, true} {
		config := hashedKeys(Config{Policy: limits[0], MaxKeys: 1 << 16})
		e, err := New[string](config)
		require.NoError(t, err)
		all := keys(n)
		for _, key := range all {
			require.True(t, e.Take(key, before).Allowed)
		}
		e = restart(t, e, config, func() {})
		require.Equal(t, n, e.Stats().Hashed)
		admitted := make([]atomic.Int64, n)
		together(callers+1, func(c int) {
			if c == callers {
				for i := range 20 {
					if changes {
						assert.NoError(t, e.SetPolicy(limits[(i+1)%2]))
					}
					assert.NoError(t, e.Save(io.Discard))
				}
				return
			}
			r := rand.New(rand.NewPCG(uint64(c), 0))
			for range 2 {
				for _, i := range r.Perm(n) {
					if e.Choke(all[i]) {
						admitted[i].Add(1)
					}
					if r.IntN(4) == 0 {
						assert.LessOrEqual(t, e.Peek(all[i]).Remaining, int64(capacity-before))
					}
				}
			}
		})
		for i := range admitted {
			require.EqualValues(t, capacity-before, admitted[i].Load(), all[i])
		}
		require.Zero(t, e.Stats().Hashed)
		require.Equal(t, n, e.Len())
		check(t, e)
	}
}

// A state that names no key has no part of one, and a secret of its own.
func TestHashedStateNamesNoKey(t *testing.T) {
	config := hashedKeys(Config{Policy: funnel(10, 1, time.Hour)})
	var secrets [][]byte
	for range 2 {
		e := open[string](t, config)
		require.True(t, e.Choke("203.0.113.77"))
		var file bytes.Buffer
		require.NoError(t, e.Save(&file))
		require.NotContains(t, file.String(), "203.0")
		r, err := statefile.NewReader(&file)
		require.NoError(t, err)
		require.True(t, r.Header().Hashed)
		require.Equal(t, "string", r.Header().Codec)
		record, err := r.Next()
		require.NoError(t, err)
		require.Len(t, record.Key, 16)
		secrets = append(secrets, r.Header().Secret)
	}
	require.Len(t, secrets[0], secretSize)
	require.NotEqual(t, secrets[0], secrets[1])
}

// Each verb knows a key that is known by its hash alone, also if the table has no room for it and
// without a writer.
func TestVerbsOnAHashedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, full := range []WhenFull{EvictLeastDebt, RefuseNew, AdmitNew} {
			config := hashedKeys(Config{Policy: funnel(10, 1, time.Hour), MaxKeys: 3, WhenFull: full})
			loaded := func() *Engine[string] {
				e, err := New[string](config)
				require.NoError(t, err)
				require.True(t, e.Take("a", 4).Allowed)
				require.True(t, e.Take("b", 10).Allowed)
				e = restart(t, e, config, func() {})
				t.Cleanup(func() { check(t, e) })
				require.Equal(t, 2, e.Stats().Hashed)
				for i := range 3 {
					require.True(t, e.Take(fmt.Sprint("other ", i), 9).Allowed)
				}
				require.Equal(t, 3, e.Len())
				return e
			}
			e := loaded()
			require.EqualValues(t, 6, e.Peek("a").Remaining)
			require.EqualValues(t, 6, e.Take("a", 0).Remaining)
			require.EqualValues(t, 8, e.Refund("a", 2).Remaining)
			require.EqualValues(t, 8, e.Peek("a").Remaining)
			require.False(t, e.Choke("b"), "it is at its limit, with room or without")
			require.False(t, TakeAll(e.Claim("a", 1), e.Claim("b", 1)).Allowed)
			require.NoError(t, e.ChangeLimit("b", funnel(10, 1, time.Hour), funnel(20, 2, time.Hour)))
			require.Equal(t, 5*time.Hour, e.Peek("b").ResetAfter, "10 units of the faster limit")
			for key := range e.All() {
				require.NotContains(t, []string{"a", "b"}, key)
			}
			require.True(t, e.Reset("a"))
			require.False(t, e.Reset("a"))
			require.EqualValues(t, 10, e.Peek("a").Remaining)
			require.Equal(t, 1, e.Stats().Hashed)
			require.Equal(t, 3, e.Len())

			e = loaded()
			allowed := e.Take("a", 1).Allowed
			require.Equal(t, full != RefuseNew, allowed)
			if full == EvictLeastDebt {
				require.EqualValues(t, 5, e.Peek("a").Remaining)
				require.Equal(t, 1, e.Stats().Hashed)
				require.EqualValues(t, 1, e.Stats().Forgiven)
			}
		}
	})
}

// A word is found once. A key that was reset, or that left the table, is new when it comes back.
func TestHashedWordIsFoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := hashedKeys(Config{Policy: funnel(20, 1, time.Minute), Idle: time.Second})
		for name, forget := range map[string]func(e *Engine[string]){
			"reset with an entry":    func(e *Engine[string]) { e.Choke("a"); e.Reset("a") },
			"reset without an entry": func(e *Engine[string]) { e.Reset("a") },
			"given back with entry":  func(e *Engine[string]) { e.Choke("a"); e.Refund("a", 10) },
			"given back without one": func(e *Engine[string]) { e.Refund("a", 10) },
			"evicted": func(e *Engine[string]) {
				require.True(t, e.Choke("a"))
				time.Sleep(6 * time.Minute) // "b" owes still
			},
		} {
			e, err := New[string](config)
			require.NoError(t, err)
			require.True(t, e.Take("a", 5).Allowed)
			require.True(t, e.Take("b", 20).Allowed)
			e = restart(t, e, config, func() {})
			forget(e)
			require.EqualValues(t, 20, e.Peek("a").Remaining, name)
			// "a" leaves the table, at the latest when it would have if nothing had come back.
			time.Sleep(7 * time.Minute)
			synctest.Wait()
			require.Zero(t, e.Len(), name)
			require.Equal(t, 1, e.Stats().Hashed, "%s: b", name)
			d := e.Take("a", 1)
			require.EqualValues(t, 19, d.Remaining, name)
			require.Equal(t, time.Minute, d.ResetAfter, name)
			check(t, e)
		}
	})
}

// Words that mean the same as 0 are dropped, and with the last one all that is kept for them. They
// go into no state.
func TestFreshHashedWordsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := hashedKeys(Config{Policy: funnel(5000, 1, time.Second)})
		e, err := New[int](config)
		require.NoError(t, err)
		for i := range 5000 {
			require.True(t, e.Take(i, int64(i+1)).Allowed)
		}
		e = restart(t, e, config, func() {})
		defer check(t, e)
		require.Equal(t, 5000, e.Stats().Hashed)
		require.Zero(t, e.Len())
		time.Sleep(2500 * time.Second)
		n, err := e.save(io.Discard)
		require.NoError(t, err)
		require.Equal(t, 2500, n.keys)
		require.InDelta(t, 2500, e.Stats().Hashed, 10, "a look a second comes to all within three")
		time.Sleep(2510 * time.Second)
		require.Zero(t, e.Stats().Hashed)
	})
}

// The option may be turned on and off between runs. A file of hashes stays one until no word
// waits, and loses none.
func TestHashKeysIsTurnedOnAndOff(t *testing.T) {
	plain := inFile(t, Config{Policy: funnel(10, 1, time.Hour)})
	hashes := hashedKeys(plain)
	for i, run := range []struct {
		config        Config
		use           string // takes one more
		a, b          int64  // left
		waited, waits int
		hashed        bool // the file
	}{
		{plain, "a", 9, 10, 0, 0, false},
		{plain, "b", 9, 9, 0, 0, false},
		{hashes, "", 9, 9, 0, 0, true},
		{hashes, "", 9, 9, 2, 2, true},
		{hashes, "b", 9, 8, 2, 1, true},
		{plain, "", 9, 8, 2, 2, true},
		{plain, "b", 9, 7, 2, 1, true},
		{plain, "ab", 8, 6, 2, 0, false},
		{plain, "", 8, 6, 0, 0, false},
	} {
		e, err := New[string](run.config)
		require.NoError(t, err)
		require.Equal(t, run.waited, e.Stats().Hashed, "run %d", i)
		for _, key := range run.use {
			require.True(t, e.Choke(string(key)))
		}
		require.EqualValues(t, run.a, e.Peek("a").Remaining, "run %d", i)
		require.EqualValues(t, run.b, e.Peek("b").Remaining, "run %d", i)
		require.Equal(t, run.waits, e.Stats().Hashed, "run %d", i)
		require.NoError(t, e.Close())
		f, err := os.Open(run.config.State.Path)
		require.NoError(t, err)
		r, err := statefile.NewReader(f)
		require.NoError(t, err)
		require.Equal(t, run.hashed, r.Header().Hashed, "run %d", i)
		require.NoError(t, f.Close())
	}
}

// If a state has more hashes than the table may have keys, those that owe most are kept.
func TestLoadKeepsTheHashesThatOweMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := hashedKeys(Config{Policy: funnel(1000, 1, time.Second)})
		e, err := New[int](config)
		require.NoError(t, err)
		for _, i := range rand.Perm(500) {
			require.True(t, e.Take(i, int64(i+1)).Allowed)
		}
		config.MaxKeys = 100
		e = restart(t, e, config, func() {})
		defer check(t, e)
		require.Equal(t, 100, e.Stats().Hashed)
		require.EqualValues(t, 400, e.Stats().Forgiven)
		for key := range 500 {
			want := int64(1000)
			if key >= 400 {
				want = int64(1000 - key - 1)
			}
			require.Equal(t, want, e.Peek(key).Remaining)
		}
	})
}

// A change of the limit comes to all words that wait, in several steps, and to those that are on
// their way to an entry.
func TestPolicyChangesWhileHashesWait(t *testing.T) {
	hand := newHandClock()
	config := hashedKeys(Config{Policy: funnel(100, 1, time.Second), Clock: hand.Now})
	whole, err := New[int](config)
	require.NoError(t, err)
	defer func() { check(t, whole) }()
	cut, err := New[int](config)
	require.NoError(t, err)
	defer func() { check(t, cut) }()
	const n = 3000
	for i := range n {
		require.True(t, whole.Take(i, int64(1+i%100)).Allowed)
		require.True(t, cut.Take(i, int64(1+i%100)).Allowed)
	}
	var file bytes.Buffer
	require.NoError(t, cut.Save(&file))
	require.NoError(t, cut.Close())
	// By the hand no time passes.
	long := config
	long.wall = func() time.Time { return time.Unix(0, 0) }
	cut, err = Load[int](&file, long)
	require.NoError(t, err)
	for round, limit := range []policy.Policy{funnel(50, 1, time.Minute), funnel(300, 7, time.Second), funnel(100, 1, time.Second), funnel(90, 2, time.Hour)} {
		hand.Advance(time.Second)
		require.NoError(t, whole.SetPolicy(limit))
		require.NoError(t, cut.SetPolicy(limit))
		require.InDelta(t, n, cut.Stats().Hashed, n/2)
		for i := round; i < n; i += 97 {
			require.Equal(t, whole.Peek(i), cut.Peek(i))
			require.Equal(t, whole.Take(i, 1), cut.Take(i, 1))
		}
	}
	for i := range n {
		require.Equal(t, whole.Take(i, 1), cut.Take(i, 1), "key %d", i)
	}
}

// Without a writer the keys that are known by their hashes are limited as known keys are.
func TestUnhealthyEngineKnowsHashedKeys(t *testing.T) {
	f := newFaults(false)
	config := hashedKeys(inFile(t, Config{Policy: funnel(10, 1, time.Hour), Restarts: 1}))
	e, err := New[string](config)
	require.NoError(t, err)
	require.True(t, e.Take("a", 8).Allowed)
	require.NoError(t, e.Close())
	config.fault = f.at
	e, err = New[string](config)
	require.NoError(t, err)
	f.arm("writer: begin", -1)
	f.arm("writer: received", -1)
	await.True(t, func() bool {
		e.Choke(fmt.Sprint(rand.Int()))
		return e.Health() != nil
	}, "the writer is given up")
	require.EqualValues(t, 2, e.Peek("a").Remaining)
	require.True(t, e.Take("a", 2).Allowed)
	require.False(t, e.Choke("a"))
	require.NoError(t, e.Close())
	config.fault = nil
	e = open[string](t, config)
	require.EqualValues(t, 0, e.Peek("a").Remaining)
}

// Each limit of a Tiered knows its hashes, and so do claims on several engines.
func TestTieredKeepsHashes(t *testing.T) {
	config := hashedKeys(inFile(t, Config{Policy: funnel(10, 1, time.Hour)}))
	for left := int64(9); left >= 6; left-- {
		e, err := NewTiered[string](config, funnel(20, 1, time.Hour))
		require.NoError(t, err)
		if left%2 == 0 {
			require.EqualValues(t, left, e.Take("a", 1).Remaining)
		} else {
			out := TakeAll(e.Claims("a", 1)...)
			require.True(t, out.Allowed)
			require.EqualValues(t, left, out.Decisions[0].Remaining)
		}
		require.EqualValues(t, left+10, e.engines[1].Peek("a").Remaining)
		require.NoError(t, e.Close())
	}
}

// A clean stop forgives nothing, whichever word is on its way to an entry, and a state that is saved
// while words move has each.
func TestCloseSavesEveryHashedWord(t *testing.T) {
	const n = 2000
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	config := hashedKeys(inFile(t, Config{Policy: funnel(100, 1, 1000*time.Hour)}))
	e, err := New[int](config)
	require.NoError(t, err)
	used := make([]atomic.Int64, n)
	for i := range n {
		require.True(t, e.Take(i, 2).Allowed)
		used[i].Add(2)
	}
	for range rounds {
		require.NoError(t, e.Close())
		e, err = New[int](config)
		require.NoError(t, err)
		require.Equal(t, n, e.Stats().Hashed)
		before := make([]int64, n)
		for i := range before {
			before[i] = used[i].Load()
		}
		var saved bytes.Buffer
		together(3, func(c int) {
			if c == 2 {
				assert.NoError(t, e.Save(&saved))
				assert.NoError(t, e.Close())
				return
			}
			for i := c; i < n; i++ {
				if e.Choke(i) {
					used[i].Add(1)
				}
			}
		})
		by := config
		by.State.Path = ""
		loaded, err := Load[int](&saved, by)
		require.NoError(t, err)
		e, err = New[int](config)
		require.NoError(t, err)
		for i := range n {
			now := int64(100) - e.Peek(i).Remaining
			require.GreaterOrEqual(t, now, used[i].Load(), "units of key %d were forgiven", i)
			require.LessOrEqual(t, now, used[i].Load()+2, "one for each call that was refused")
			used[i].Store(now)
			then := int64(100) - loaded.Peek(i).Remaining
			require.GreaterOrEqual(t, then, before[i])
			require.LessOrEqual(t, then, now)
		}
		check(t, loaded)
	}
	require.NoError(t, e.Close())
}

// Known keys cost no allocation while other words wait, nor does a look at a key that has none.
func TestHashesCostKnownKeysNothing(t *testing.T) {
	config := hashedKeys(Config{Policy: funnel(1<<17, 1, time.Hour)})
	e, err := New[string](config)
	require.NoError(t, err)
	for _, key := range []string{"a", "b"} {
		require.True(t, e.Choke(key))
	}
	e = restart(t, e, config, func() {})
	defer check(t, e)
	require.True(t, e.Choke("a"))
	settled(t, e)
	require.Equal(t, 1, e.Stats().Hashed)
	require.Zero(t, testing.AllocsPerRun(1000, func() { e.Choke("a") }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { e.Take("a", 2) }))
}

// Hashes of another length, and a codec that has none for a key, do no harm.
func TestHashesThatAreNone(t *testing.T) {
	limit := funnel(10, 1, time.Hour)
	var file bytes.Buffer
	w, err := statefile.NewWriter(&file, statefile.Header{
		Epoch: time.Now(), Limit: limit.String(), Codec: "string", Hashed: true, Secret: make([]byte, secretSize),
	})
	require.NoError(t, err)
	word, _ := limit.Take(0, 1, 10, 0)
	require.NoError(t, w.Add(make([]byte, 15), word, 0))
	require.NoError(t, w.Close(1))
	_, err = Load[string](&file, Config{Policy: limit})
	require.ErrorIs(t, err, ErrState)
	require.ErrorContains(t, err, "15 bytes, want 16")

	codec := KeyCodec("odd", func(dst []byte, key int) ([]byte, error) {
		if key%2 == 0 {
			panic("even")
		}
		return append(dst, byte(key)), nil
	}, func([]byte) (int, error) { panic("no hash is decoded") })
	config := hashedKeys(Config{Policy: limit})
	e, err := New(config, codec)
	require.NoError(t, err)
	for key := range 4 {
		require.True(t, e.Choke(key))
	}
	var saved bytes.Buffer
	n, err := e.save(&saved)
	require.NoError(t, err)
	require.Equal(t, 2, n.keys)
	require.EqualValues(t, 2, n.unsaved)
	require.NoError(t, e.Close())
	e, err = Load(&saved, config, codec)
	require.NoError(t, err)
	defer check(t, e)
	for key := range 4 {
		require.EqualValues(t, 10-key%2, e.Peek(key).Remaining)
		require.True(t, e.Choke(key))
	}

	_, err = New[float64](config)
	require.ErrorContains(t, err, "engine.KeyCodec")
}

// If a hash comes twice, the last word counts: a key whose word moved while it was saved is written
// with both, and the limit may have changed in between.
func TestLastWordOfAHashCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := funnel(10, 1, time.Minute), funnel(10, 1, time.Hour)
		secret, now := make([]byte, secretSize), policy.Instant(time.Second)
		hash := keycodec.NewHasher(secret).Hash([]byte("a"))
		var file bytes.Buffer
		w, err := statefile.NewWriter(&file, statefile.Header{
			Epoch: time.Now().Add(-time.Second), Limit: old.String(), Codec: "string", Hashed: true, Secret: secret,
		})
		require.NoError(t, err)
		word, _ := old.Take(0, now, 1, 0)
		require.NoError(t, w.Add(hash[:], word, 0))
		require.NoError(t, w.SetLimit(next.String()))
		word, _ = next.Take(0, now, 10, 0)
		require.NoError(t, w.Add(hash[:], word, 0))
		require.NoError(t, w.Close(now))
		e, err := Load[string](&file, Config{Policy: next})
		require.NoError(t, err)
		defer check(t, e)
		require.Equal(t, 1, e.Stats().Hashed)
		require.Zero(t, e.Peek("a").Remaining)
	})
}

// A clock that goes back after a word was dropped finds its key no fresher than it was then.
func TestClockThatGoesBackAfterAHashWasDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandClock()
		config := hashedKeys(Config{Policy: funnel(1, 1, time.Hour), Clock: hand.Now})
		e, err := New[string](config)
		require.NoError(t, err)
		require.True(t, e.Choke("a"))
		e = restart(t, e, config, func() {})
		defer check(t, e)
		require.False(t, e.Choke("a"))
		e2 := restart(t, e, config, func() {})
		defer check(t, e2)
		hand.Advance(2 * time.Hour)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Zero(t, e2.Stats().Hashed)
		hand.Advance(-2 * time.Hour)
		require.True(t, e2.Choke("a"))
		hand.Advance(90 * time.Minute)
		require.False(t, e2.Choke("a"), "it was admitted as of two hours")
		hand.Advance(90 * time.Minute)
		require.True(t, e2.Choke("a"))
	})
}

// golden is a state that names no key, of version 1 of the format: alice has used 3 of funnel 10,
// 1/h, bob 10 and carol 5.
const golden = "8952414c0d0a1a0a010000000144000000a572046b00000000edfbd1210e66756e6e656c2031302c20312f6806737472696e" +
	"670120a6c313399b14c4dcbe1e312a8826b78f9f9fc4ed913ac5281e45b2c8f073e1b392ebce87024b000000401d019e97ada535d6c2ce" +
	"40d4f52a18b790d19273de0b020040dc0b162eb5cfa3c220483775bc363fc3c047c822299d000040cff3a273709831b3579d9977683c5f" +
	"a5e0e0e039ef050100d914032b03100000000300000000000000015405000000000029aada6c"

// A file of hashes that an earlier version has written is read: the bytes of keys, and how they are
// hashed, do not change.
func TestHashesOfVersion1(t *testing.T) {
	file, err := hex.DecodeString(golden)
	require.NoError(t, err)
	r, err := statefile.NewReader(bytes.NewReader(file))
	require.NoError(t, err)
	e, err := Load[string](bytes.NewReader(file), Config{
		Policy: funnel(10, 1, time.Hour),
		wall:   func() time.Time { return r.Header().Epoch.Add(time.Hour + time.Second) },
	})
	require.NoError(t, err)
	defer check(t, e)
	require.Equal(t, 3, e.Stats().Hashed)
	for key, left := range map[string]int64{"alice": 8, "bob": 1, "carol": 6, "dave": 10} {
		require.Equal(t, left, e.Peek(key).Remaining, key)
	}
}

// A key of which a codec writes other bytes each time has no hash. It is told of, not lost unseen.
func TestHashesNeedTheSameBytes(t *testing.T) {
	salt := byte(0)
	salted := KeyCodec("salted", func(dst []byte, key string) ([]byte, error) {
		if key != "plain" {
			salt++
		}
		return append(append(dst, salt), key...), nil
	}, func(src []byte) (string, error) { return string(src[1:]), nil })
	e, err := New(Config{Policy: funnel(10, 1, time.Hour), State: State{Path: filepath.Join(t.TempDir(), "state"), HashKeys: true}}, salted)
	require.NoError(t, err)
	for _, key := range []string{"plain", "a", "b"} {
		require.True(t, e.Choke(key))
	}
	require.NoError(t, e.Close())
	assert.EqualValues(t, 2, e.Stats().Unsaved)
	assert.EqualValues(t, 1, e.Stats().Saved)
}
