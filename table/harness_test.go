package table

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/require"
)

const second = policy.Instant(time.Second)

// A rig is a table with a test as its writer and callers.
type rig[K comparable] struct {
	*Table[K]
	t testing.TB
}

// newRig makes a table that admits one take an hour a key and keeps it a minute, by default. When
// the test has ended, map and index must agree.
func newRig[K comparable](t testing.TB, o Options) rig[K] {
	t.Helper()
	if o.Policy == nil {
		o.Policy = policy.Must(policy.Funnel(1, 1, time.Hour))
	}
	if o.Idle == 0 {
		o.Idle = time.Minute
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 64
	}
	r := rig[K]{New[K](o), t}
	t.Cleanup(func() { require.NoError(t, r.Check()) })
	return r
}

func (r rig[K]) open(key K) *Entry[K] {
	r.t.Helper()
	e, status := r.View().Open(r.hash(key), key)
	require.Contains(r.t, []Status{Found, Landed}, status)
	return e
}

// take takes once from an entry, and reports whether it was admitted.
func (r rig[K]) take(e *Entry[K], now policy.Instant) bool {
	r.t.Helper()
	word, terms := r.View().Read(e)
	state, alive := terms.State(word)
	require.True(r.t, alive)
	next, d := terms.Policy.Take(state, now, 1, 0)
	return d.Allowed && e.Advance(word, next|terms.EpochBit)
}

func (r rig[K]) add(key K, now policy.Instant) *Entry[K] {
	r.t.Helper()
	e := r.open(key)
	require.True(r.t, r.take(e, now))
	r.fileOne(e, now)
	return e
}

// fileOne files an entry that is in its slot, without the others.
func (r rig[K]) fileOne(e *Entry[K], now policy.Instant) {
	slot := r.slotOf(r.hash(e.Key()))
	if n := nodeOf(slot, e); n != nil {
		r.file(slot, n, now)
	}
}

// once makes the table call do when it next comes to the point.
func (r rig[K]) once(point string, do func()) {
	r.step = func(at string) {
		if at == point {
			r.step = nil
			do()
		}
	}
}

// has reports whether callers see the key.
func (r rig[K]) has(key K) bool { return r.View().Look(r.hash(key), key) != nil }

// settle lets the writer finish, and counts the steps.
func (r rig[K]) settle(now policy.Instant) (steps int) {
	for r.Unsettled() {
		r.Settle(now)
		steps++
	}
	return steps
}

func (r rig[K]) sweep(now policy.Instant) (evicted int) {
	for more := true; more; {
		result := r.Sweep(now, 64)
		evicted, more = evicted+result.Evicted, result.More
	}
	return evicted
}

func oneHash[K comparable](K) uint64 { return 7 }
