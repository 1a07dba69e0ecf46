package underway_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// call is a take with its remaining units.
type call struct {
	at policy.Instant
	n  int64
	id uint64
}

// word returns the word after the remaining calls, each at its instant.
func word(p policy.Policy, calls []call) (word uint64) {
	for _, c := range calls {
		if c.n > 0 {
			word, _ = p.Take(word, c.at, c.n, 0)
		}
	}
	return word
}

// remembered returns the limits whose takes are remembered, one of each kind. The others are
// policy.Restorers.
func remembered(t *testing.T) (all []policy.Policy) {
	for _, text := range []string{
		"funnel 40, 10/s", "queue 40, 10/s", "bursty 10/s, 40", "warming up 10/s over 20s, cold 3",
		"window 40/s", "sliding 40/s", "window 40/s aligned", "window 40/day in UTC", "at most 4/s",
	} {
		p := policy.Must(policy.Parse(text))
		if _, ok := p.(policy.Restorer); !ok {
			all = append(all, p)
		}
	}
	require.Len(t, all, 2, "funnel and bursty")
	return all
}

// Whatever the order of calls and ends, the word is as if the returned units had never been taken,
// and every settle is made.
//
// Promise: A grant settled with 0 leaves no trace.
func TestSettleLeavesNoTrace(t *testing.T) {
	for _, p := range remembered(t) {
		settled := 0
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1))
			var log underway.Log
			var calls []call
			now, m := policy.Instant(1+r.Int64N(1e9)), underway.Mark{}
			for range 40 {
				now += policy.Instant(r.Int64N(3e8))
				if r.IntN(2) == 0 {
					n := 1 + r.Int64N(3)
					next, d := p.Take(m.Word, now, n, 0)
					if !d.Allowed {
						continue
					}
					before := m.Word
					m.Word = next
					calls = append(calls, call{now, n, log.Add(p, before, m, now, n)})
					continue
				}
				if len(calls) == 0 {
					continue
				}
				c := &calls[r.IntN(len(calls))]
				n := r.Int64N(c.n + 1)
				if n == c.n {
					continue
				}
				next, ok := log.Settle(c.id, m, n)
				require.True(t, ok)
				settled++
				c.n = n
				m.Word, m.Returned = next, m.Returned+1
				log.Settled(m)
				require.Equal(t, word(p, calls), m.Word, "%v, seed %d: %v", p, seed, calls)
				if c.n == 0 {
					_, ok = log.Settle(c.id, m, 0)
					require.False(t, ok, "given back twice")
				}
			}
		}
		assert.Greater(t, settled, 1000, "%v", p)
	}
}

// A take that is not in the log gives units back. Later takes are settled as exactly as before: the
// word is as if fewer units had been used before them.
func TestCorrectKeepsLaterSettlesExact(t *testing.T) {
	for _, p := range remembered(t) {
		corrected := 0
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 2))
			var log underway.Log
			now := policy.Instant(1e10)
			const units = 8
			// A call that does not remember the take took the units.
			taken, d := p.Take(0, now, units, 0)
			require.True(t, d.Allowed)
			m := underway.Mark{Word: taken}
			var calls []call
			for range 6 {
				now += policy.Instant(r.Int64N(2e8))
				n := 1 + r.Int64N(3)
				before := m.Word
				m.Word, d = p.Take(before, now, n, 0)
				require.True(t, d.Allowed && d.Wait == 0)
				calls = append(calls, call{now, n, log.Add(p, before, m, now, n)})
			}
			next := p.(policy.Refunder).Cancel(m.Word, taken, 1e10, now, units, 0)
			lowered := m.Word - next
			require.True(t, log.Correct(m, next))
			m.Word, m.Returned = next, units
			log.Settled(m)
			if lowered > 0 {
				corrected++
			}
			for i := range calls {
				next, ok := log.Settle(calls[i].id, m, 0)
				require.True(t, ok, "seed %d: %d", seed, i)
				calls[i].n = 0
				want := taken - lowered
				for _, c := range calls {
					if c.n > 0 {
						want, _ = p.Take(want, c.at, c.n, 0)
					}
				}
				require.Equal(t, want, next, "%v, seed %d", p, seed)
				m.Word, m.Returned = next, m.Returned+1
				log.Settled(m)
			}
		}
		assert.Greater(t, corrected, 50, "%v", p)
	}
}

// After a give-back that it did not know of, a Log starts anew, and knows the next takes.
func TestCorrectOfAnotherWordStartsAnew(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	var log underway.Log
	one, _ := p.Take(0, 1, 1, 0)
	first := log.Add(p, 0, underway.Mark{Word: one}, 1, 1)
	require.True(t, log.Correct(underway.Mark{Word: one + 100}, one+50))
	m := underway.Mark{Word: one + 50, Returned: 1}
	log.Settled(m)
	_, ok := log.Settle(first, m, 0)
	assert.False(t, ok, "its take is in no word that the log knows")
	before := m.Word
	m.Word, _ = p.Take(before, 1, 1, 0)
	next, ok := log.Settle(log.Add(p, before, m, 1, 1), m, 0)
	assert.True(t, ok)
	assert.Equal(t, before, next)
}

// A charge is made again like a take, even if the limit would not allow it.
func TestChargesAreRemembered(t *testing.T) {
	for _, p := range remembered(t) {
		var log underway.Log
		m := underway.Mark{}
		m.Word, _ = p.Take(0, 1e10, 3, 0)
		first := log.Add(p, 0, m, 1e10, 3)
		before, charge := m.Word, int64(-100)
		m.Word = p.(policy.Refunder).Refund(before, 1e10, charge)
		assert.NotZero(t, log.Add(p, before, m, 1e10, charge))
		next, ok := log.Settle(first, m, 0)
		assert.True(t, ok)
		assert.Equal(t, p.(policy.Refunder).Refund(0, 1e10, charge), next, "%v", p)

		var none underway.Log
		assert.Zero(t, none.Add(p, 0, m, 1e10, charge), "no take can come back")
	}
}

// erratic is a limit under which a take costs more behind fewer units.
type erratic struct{ policy.Policy }

func (e erratic) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	next, d := e.Policy.Take(word, now, n, patience)
	if word == 0 {
		next += 1 << 50
	}
	return next, d
}

// Whatever a policy says of the remaining takes, a settle never raises the word. Neither does one
// lower it to a word that those takes would not have left.
func TestErraticPolicyIsNotSettled(t *testing.T) {
	p := erratic{policy.Must(policy.Funnel(1000, 1, time.Second))}
	var log underway.Log
	one, _ := p.Policy.Take(0, 1, 1, 0)
	first := log.Add(p, 0, underway.Mark{Word: one}, 1, 1)
	two, _ := p.Take(one, 1, 1, 0)
	m := underway.Mark{Word: two}
	log.Add(p, one, m, 1, 1)
	_, ok := log.Settle(first, m, 0)
	assert.False(t, ok, "the second take alone costs more than both")
	assert.False(t, log.Correct(m, two-1), "its base cannot be lower than nothing")
	before := m.Word
	m.Word, _ = p.Take(before, 1, 1, 0)
	next, ok := log.Settle(log.Add(p, before, m, 1, 1), m, 0)
	assert.True(t, ok, "the log is unchanged")
	assert.Equal(t, two, next)
}

// A word changed by other calls, and a take that was pushed out, are not settled.
func TestSettleKnowsItsWord(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	var log underway.Log
	add := func(m *underway.Mark) uint64 {
		before := m.Word
		m.Word, _ = p.Take(before, 1, 1, 0)
		return log.Add(p, before, *m, 1, 1)
	}
	m := underway.Mark{}
	first := add(&m)
	for name, other := range map[string]underway.Mark{
		"taken": {Word: m.Word + 1}, "returned": {Word: m.Word, Returned: 1}, "epoch": {Word: m.Word, Epoch: 1},
	} {
		_, ok := log.Settle(first, other, 0)
		assert.False(t, ok, name)
	}
	for range 127 {
		add(&m)
	}
	at := log
	_, ok := at.Settle(first, m, 0)
	assert.True(t, ok)
	log = underway.Log{}
	m = underway.Mark{}
	first = add(&m)
	for range 192 {
		add(&m)
	}
	_, ok = log.Settle(first, m, 0)
	assert.False(t, ok, "pushed out")
	_, ok = log.Settle(first+64, m, 0)
	assert.True(t, ok, "with 63 others")
	// The take was not added.
	m.Word += 5
	last := add(&m)
	_, ok = log.Settle(last, m, 0)
	assert.True(t, ok)
	_, ok = log.Settle(last-1, m, 0)
	assert.False(t, ok, "before a take that was not added")
}

// Entries of one hash never settle each other's takes. Each settles its own, also after others have its
// place in the set.
func TestLogsAreOfOneEntry(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	logs := underway.Logs[int]{MaxKeys: 1 << 20}
	next, _ := p.Take(0, 1, 1, 0)
	m := underway.Mark{Word: next}
	var receipts []underway.Receipt[int]
	for range 17 {
		entry := new(int)
		log := logs.Open(7, entry)
		assert.Same(t, entry, log.Entry)
		assert.Same(t, log, logs.Open(7, entry))
		receipts = append(receipts, underway.Receipt[int]{Log: log, ID: log.Add(p, 0, m, 1, 1)})
	}
	for i, r := range receipts {
		if i == 0 {
			assert.Nil(t, logs.Find(7, r.Log.Entry), "the first of 17 has no place in a set of 16")
		} else {
			assert.Same(t, r.Log, logs.Find(7, r.Log.Entry))
			assert.Same(t, r.Log, logs.Open(7, r.Log.Entry))
		}
		back, ok := r.Log.Settle(r.ID, m, 0)
		assert.True(t, ok)
		assert.Zero(t, back)
	}
}

// There are no more than 4,096 places, and hardly more than twice as many as keys.
func TestPlacesAreBounded(t *testing.T) {
	for keys, places := range map[int]int{1: 16, 8: 16, 100: 208, 1 << 20: 4096} {
		logs := underway.Logs[int]{MaxKeys: keys}
		random := rand.New(rand.NewPCG(testenv.Seed(t), 1))
		all := map[*underway.EntryLog[int]]uint64{}
		for range 40_000 {
			hash := random.Uint64()
			all[logs.Open(hash, new(int))] = hash
		}
		found := 0
		for log, hash := range all {
			if logs.Find(hash, log.Entry) == log {
				found++
			}
		}
		assert.Equal(t, places, found, "%d keys", keys)
	}
}

// Random keys find a place beside each other: all of a quarter as many as there are places.
func TestManyKeysHaveAPlaceEach(t *testing.T) {
	for maxKeys, keys := range map[int]int{100: 20, 1 << 20: 1000} {
		logs := underway.Logs[int]{MaxKeys: maxKeys}
		random := rand.New(rand.NewPCG(testenv.Seed(t), 1))
		hashes := map[uint64]*underway.EntryLog[int]{}
		for range keys {
			hash := random.Uint64()
			hashes[hash] = logs.Open(hash, new(int))
		}
		for hash, log := range hashes {
			assert.Same(t, log, logs.Find(hash, log.Entry), "%d of %d keys", keys, maxKeys)
		}
	}
}

// After another call overtakes a give-back, the Log settles nothing more, even if the word comes
// back.
func TestOvertakenSettleEndsTheLog(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	var log underway.Log
	one, _ := p.Take(0, 1, 1, 0)
	two, _ := p.Take(one, 1, 1, 0)
	first := log.Add(p, 0, underway.Mark{Word: one}, 1, 1)
	m := underway.Mark{Word: two}
	second := log.Add(p, one, m, 1, 1)
	_, ok := log.Settle(second, m, 0)
	require.True(t, ok)
	_, ok = log.Settle(first, m, 0)
	assert.False(t, ok, "the word has two takes, and the log one")
}

// A call may have read its clock before its key was last forgotten. A give-back makes its take no
// earlier: the time until then was used by calls that are forgotten.
func TestSettleMakesNoTakeEarlierThanTheFirst(t *testing.T) {
	for _, p := range remembered(t) {
		var log underway.Log
		const late, early = policy.Instant(20e9), policy.Instant(19e9)
		one, _ := p.Take(0, late, 1, 0)
		two, d := p.Take(one, early, 1, 0)
		require.True(t, d.Allowed && d.Wait == 0, "%v", p)
		first := log.Add(p, 0, underway.Mark{Word: one}, late, 1)
		m := underway.Mark{Word: two}
		log.Add(p, one, m, early, 1)
		next, ok := log.Settle(first, m, 0)
		require.True(t, ok, "%v", p)
		want, _ := p.Take(0, late, 1, 0)
		assert.Equal(t, want, next, "%v", p)
	}
}

// A Log is found as long as a receipt keeps it, or as it was used last in its set. Then enough calls that miss it
// forget its hash.
func TestLogsAreFoundWhileReceiptsKeepThem(t *testing.T) {
	logs := underway.Logs[int]{MaxKeys: 1}
	entry, other := new(int), new(int)
	assert.Nil(t, logs.Find(1, entry), "there are no sets")
	log := logs.Open(1, entry)
	assert.Same(t, log, logs.Find(1, entry))
	assert.Nil(t, logs.Find(1, other))
	assert.Nil(t, logs.Find(2, entry))
	logs.Open(3, other)
	for range 100 {
		assert.Nil(t, logs.Find(1, other))
	}
	runtime.GC()
	assert.Same(t, log, logs.Find(1, entry), "the receipt keeps the Log")
	runtime.KeepAlive(log)
	log = nil
	runtime.GC()
	for range 100 {
		assert.Nil(t, logs.Find(1, entry))
	}
	assert.NotNil(t, logs.Find(3, other), "its Log was used last")
	assert.NotNil(t, logs.Open(1, entry))
	assert.NotNil(t, logs.Find(1, entry))
}

// Calls at once meet the same Log of an entry.
func TestCallsMeetTheSameLog(t *testing.T) {
	logs := underway.Logs[int]{MaxKeys: 1}
	entries := make([]int, 8)
	var group sync.WaitGroup
	all := make([][]*underway.EntryLog[int], 4)
	for caller := range all {
		group.Go(func() {
			for i := range 1000 {
				all[caller] = append(all[caller], logs.Open(uint64(i%8), &entries[i%8]))
				logs.Find(uint64(i*5%8), &entries[i*5%8])
			}
		})
	}
	group.Wait()
	for i := range 1000 {
		for caller := range all {
			require.Same(t, all[0][i%8], all[caller][i])
		}
	}
}

// Undo is Settle to 0, but only of the latest take, and of the word that it left.
func TestUndoSettlesTheLatestTake(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	one, _ := p.Take(0, 1, 1, 0)
	two, _ := p.Take(one, 1, 1, 0)
	var log underway.Log
	first := log.Add(p, 0, underway.Mark{Word: one}, 1, 1)
	second := log.Add(p, one, underway.Mark{Word: two}, 1, 1)
	undo := func(id uint64, m underway.Mark) (next uint64, ok bool) {
		if next, ok = log.Undo(id, m); ok {
			log.Settled(underway.Mark{Word: next})
		}
		return next, ok
	}
	_, ok := undo(first, underway.Mark{Word: two})
	require.False(t, ok, "a take that is not the latest was undone")
	_, ok = undo(second, underway.Mark{Word: two, Returned: 1})
	require.False(t, ok, "units were given back since")
	next, ok := undo(second, underway.Mark{Word: two})
	require.True(t, ok)
	assert.Equal(t, one, next)
	_, ok = undo(second, underway.Mark{Word: one})
	require.False(t, ok, "a take that is over was undone")
	next, ok = undo(first, underway.Mark{Word: one})
	require.True(t, ok)
	assert.Zero(t, next)
	_, ok = undo(first, underway.Mark{})
	require.False(t, ok, "the Log is empty")
}
