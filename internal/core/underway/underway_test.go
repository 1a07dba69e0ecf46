package underway_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/internal/testkit/policies"
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

func everyKind() []policy.Policy {
	var all []policy.Policy
	for _, text := range []string{
		"funnel 40, 10/s", "queue 40, 10/s", "bursty 10/s, 40", "warming up 10/s over 20s, cold 3",
		"window 40/s", "sliding 40/s", "window 40/s aligned", "window 40/day in UTC", "at most 4/s",
	} {
		all = append(all, policy.Must(policy.Parse(text)))
	}
	return all
}

// Under each limit, whatever the order of calls and ends, the word is as if the returned units had
// never been taken.
//
// Promise: A grant settled with 0 leaves no trace.
func TestSettleLeavesNoTrace(t *testing.T) {
	for _, p := range everyKind() {
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
					if !d.Allowed || d.Wait > 0 {
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
				if c.n == 0 {
					require.False(t, ok, "given back twice")
					continue
				}
				if !ok {
					continue // a smaller take would have changed the word for later takes
				}
				settled++
				c.n = n
				m.Word, m.Returned = next, m.Returned+1
				log.Settled(m)
				require.Equal(t, word(p, calls), m.Word, "%v, seed %d: %v", p, seed, calls)
			}
		}
		assert.Greater(t, settled, 1000, "%v", p)
	}
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
	for range 160 {
		add(&m)
	}
	_, ok = log.Settle(first, m, 0)
	assert.False(t, ok, "pushed out")
	_, ok = log.Settle(first+32, m, 0)
	assert.True(t, ok, "with 31 others")
	m.Word += 5 // a take that was not added
	last := add(&m)
	_, ok = log.Settle(last, m, 0)
	assert.True(t, ok)
	_, ok = log.Settle(last-1, m, 0)
	assert.False(t, ok, "before a take that was not added")
}

// Two keys that share a place never settle each other's takes.
func TestPlacesAreOfOneKey(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	var logs underway.Logs[*int]
	a, b := new(int), new(int)
	next, _ := p.Take(0, 1, 1, 0)
	m := underway.Mark{Word: next}
	id := logs.Add(a, 7, p, 0, m, 1, 1)
	other := logs.Add(b, 7+1<<12, p, 0, m, 1, 1)
	assert.NotEqual(t, id, other)
	_, ok := logs.Settle(a, id, m, 0)
	assert.False(t, ok)
	_, ok = logs.Settle(b, id, m, 0)
	assert.False(t, ok)
	logs.Settled(a, id, underway.Mark{})
	back, ok := logs.Settle(b, other, m, 0)
	assert.True(t, ok)
	assert.Zero(t, back)
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
	for _, p := range everyKind() {
		var log underway.Log
		const late, early = policy.Instant(20e9), policy.Instant(1)
		one, _ := p.Take(0, late, 1, 0)
		two, d := p.Take(one, early, 1, 0)
		if !d.Allowed || d.Wait > 0 {
			continue
		}
		first := log.Add(p, 0, underway.Mark{Word: one}, late, 1)
		m := underway.Mark{Word: two}
		log.Add(p, one, m, early, 1)
		if next, ok := log.Settle(first, m, 0); ok {
			want, _ := p.Take(0, late, 1, 0)
			assert.Equal(t, want, next, "%v", p)
		}
	}
}

// A policy that takes for a key with the same place, while its own take is repeated, blocks no call
// for ever. That take is not remembered.
func TestPolicyThatTakesIsNoDeadlock(t *testing.T) {
	p := policy.Must(policy.Funnel(1000, 1, time.Second))
	var logs underway.Logs[*int]
	a, b := new(int), new(int)
	one, _ := p.Take(0, 1, 1, 0)
	two, _ := p.Take(one, 1, 1, 0)
	calls := 0
	under := policies.Calling{Policy: p, Call: func() {
		if calls++; calls > 1 {
			return
		}
		assert.Zero(t, logs.Add(b, 7+1<<12, p, 0, underway.Mark{Word: one}, 1, 1))
		_, ok := logs.Settle(b, 7, underway.Mark{Word: one}, 0)
		assert.False(t, ok)
		logs.Settled(b, 7, underway.Mark{})
	}}
	first := logs.Add(a, 7, p, 0, underway.Mark{Word: one}, 1, 1)
	m := underway.Mark{Word: two}
	logs.Add(a, 7, under, one, m, 1, 1)
	next, ok := logs.Settle(a, first, m, 0)
	assert.True(t, ok)
	assert.Equal(t, one, next)
	assert.Positive(t, calls)
}
