package single

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Here a call overtakes another between its read of the word and its swap, whatever the scheduler
// does.

// overtaken is a limit that runs meanwhile, once, after its decision on a word.
type overtaken struct {
	policy.Policy
	meanwhile func()
}

func (o *overtaken) strike() {
	if f := o.meanwhile; f != nil {
		o.meanwhile = nil
		f()
	}
}

func (o *overtaken) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	next, d := o.Policy.Take(word, now, n, patience)
	if n > 0 {
		o.strike()
	}
	return next, d
}

func (o *overtaken) Choke(word uint64, now policy.Instant) (uint64, bool) {
	next, allowed := o.Policy.(policy.Choker).Choke(word, now)
	o.strike()
	return next, allowed
}

func (o *overtaken) FreshAt(word uint64) policy.Instant {
	o.strike()
	return o.Policy.FreshAt(word)
}

func (o *overtaken) Refund(word uint64, now policy.Instant, n int64) uint64 {
	next := o.Policy.(policy.Refunder).Refund(word, now, n)
	o.strike()
	return next
}

func (o *overtaken) Cancel(word, taken uint64, at, now policy.Instant, n, undone int64) uint64 {
	next := o.Policy.(policy.Refunder).Cancel(word, taken, at, now, n, undone)
	o.strike()
	return next
}

func (o *overtaken) Reads(other policy.Policy) bool { return true }

func (o *overtaken) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	if other, ok := from.(*overtaken); ok {
		from = other.Policy
	}
	next, ok := o.Policy.(policy.Relative).Carry(from, word, now)
	if word != 0 {
		o.strike()
	}
	return next, ok
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

func still(t *testing.T, p policy.Policy) *Limiter {
	return must.Get(New(p, Clock(func() policy.Instant { return 1 })))
}

// Two calls cannot spend the same unit.
func TestOvertakenCallDecidesAgain(t *testing.T) {
	for name, call := range map[string]func(l *Limiter) bool{
		"Choke":   (*Limiter).Choke,
		"Take":    func(l *Limiter) bool { return l.Take(1).Allowed },
		"Reserve": func(l *Limiter) bool { return l.Reserve(1, 0).Allowed },
		"Wait":    func(l *Limiter) bool { return l.acquireNow(t) },
	} {
		limit := &overtaken{Policy: funnel(3, 1, time.Hour)}
		l := still(t, limit)
		require.True(t, l.Choke(), name)
		limit.meanwhile = func() { require.True(t, l.Take(2).Allowed) }
		assert.False(t, call(l), name)
		assert.Nil(t, limit.meanwhile, name)
		assert.Zero(t, l.Peek(0).Remaining, name)
	}
}

func (l *Limiter) acquireNow(t *testing.T) bool {
	_, err := l.Acquire(t.Context(), 1, 0)
	return err == nil
}

// The overtaking take keeps its units.
func TestOvertakenCallGivesBackAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(l *Limiter, r *Reservation)
		// left is what is left of 10 units, after 4 and 1 were taken.
		left int64
	}{
		{"Refund", func(l *Limiter, _ *Reservation) { l.Refund(4) }, 9},
		{"a charge", func(l *Limiter, _ *Reservation) { l.Refund(-4) }, 1},
		{"Cancel", func(_ *Limiter, r *Reservation) { r.Cancel() }, 9},
		{"Keep", func(_ *Limiter, r *Reservation) { r.Keep(1) }, 8},
	} {
		for _, others := range []bool{false, true} {
			limit := &overtaken{Policy: funnel(10, 1, time.Hour)}
			l := still(t, limit)
			r := l.Reserve(4, 0)
			left := c.left
			// Cancel has to compute the returned units then.
			if others {
				require.True(t, l.Choke())
				left--
			}
			limit.meanwhile = func() { require.True(t, l.Choke()) }
			c.call(l, &r)
			// A Cancel that restores the word asks no policy.
			if limit.meanwhile != nil {
				require.Equal(t, "Cancel", c.name)
				left++
			}
			assert.Equal(t, left, l.Peek(0).Remaining, "%s, others %v", c.name, others)
		}
	}
}

func TestTakeWhileThePolicyChanges(t *testing.T) {
	l := still(t, funnel(10, 1, time.Hour))
	require.True(t, l.Take(4).Allowed)
	next := &overtaken{Policy: funnel(20, 1, time.Hour)}
	next.meanwhile = func() { require.True(t, l.Take(3).Allowed) }
	require.NoError(t, l.SetPolicy(next))
	assert.EqualValues(t, 13, l.Peek(0).Remaining)
}

// Calls go by the new terms from the swap on, before the Limiter has them.
func TestNewTermsHoldAtOnce(t *testing.T) {
	l := still(t, funnel(10, 1, time.Hour))
	require.True(t, l.Take(4).Allowed)
	old, next := l.terms.Load(), newTerms(funnel(20, 1, time.Hour))
	// Both terms have one rate.
	next.word.Store(old.word.Load())
	old.next.Store(next)
	old.word.Store(moved)

	assert.True(t, l.Choke())
	assert.EqualValues(t, 14, l.Take(1).Remaining)
	assert.EqualValues(t, 14, l.Peek(0).Remaining)
	assert.True(t, l.probe(14, noDelay).Allowed)
	r := l.Reserve(1, 0)
	assert.True(t, r.Allowed)
	l.terms.Store(next)
	old.next.Store(nil)
	assert.EqualValues(t, 13, l.Peek(0).Remaining)
	r.Cancel()
	assert.EqualValues(t, 14, l.Peek(0).Remaining)
}

// Nothing comes back, even if a change back has left the word as it was. The reservation keeps no
// later terms.
func TestReservationFromBeforeAChange(t *testing.T) {
	l := still(t, funnel(10, 1, time.Second))
	r := l.Reserve(4, 0)
	old := l.terms.Load()
	require.NoError(t, l.SetPolicy(funnel(10, 1, time.Minute)))
	require.NoError(t, l.SetPolicy(funnel(10, 1, time.Second)))
	assert.Nil(t, old.next.Load())
	r.Cancel()
	assert.EqualValues(t, 6, l.Peek(0).Remaining)
}

// Units that were given back and taken again by another call are not given back, if the log of
// reservations has forgotten the call, either.
func TestCancelOfAnOldCallAnnouncesItsUnits(t *testing.T) {
	now := policy.Instant(0)
	l := must.Get(New(funnel(11, 1, time.Second), Clock(func() policy.Instant { return now })))
	first := l.Reserve(5, 0)
	require.True(t, l.Choke())
	second := l.Reserve(5, 0)
	first.Cancel()
	now += policy.Instant(4 * time.Second)
	// The word is as second left it.
	require.True(t, l.Take(5).Allowed)
	second.Cancel()
	assert.Equal(t, 5*time.Second, l.Peek(0).ResetAfter)
}

// Otherwise a word restored by two takes and two cancels would count as untouched.
func TestOneCallAtATimeLowersTheWord(t *testing.T) {
	for name, call := range map[string]func(l *Limiter, r *Reservation){
		"Refund": func(l *Limiter, _ *Reservation) { l.Refund(1) },
		"Cancel": func(_ *Limiter, r *Reservation) { r.Cancel() },
		"Reset":  func(l *Limiter, _ *Reservation) { l.Reset() },
		"SetPolicy": func(l *Limiter, _ *Reservation) {
			before := l.Limit().(*overtaken)
			next := &overtaken{Policy: funnel(20, 1, time.Hour), meanwhile: before.meanwhile}
			assert.NoError(t, l.SetPolicy(next))
			before.meanwhile = next.meanwhile
		},
	} {
		limit := &overtaken{Policy: funnel(10, 1, time.Hour)}
		l := still(t, limit)
		r := l.Reserve(2, 0)
		require.True(t, l.Choke())
		limit.meanwhile = func() {
			free := l.mu.TryLock()
			if free {
				l.mu.Unlock()
			}
			assert.False(t, free, name)
		}
		call(l, &r)
		assert.Nil(t, limit.meanwhile, name)
	}
}

// Whatever a policy makes of their last word.
func TestCancelLeavesReplacedTerms(t *testing.T) {
	l := still(t, broken{funnel(10, 1, time.Second), 1})
	r := l.Reserve(4, 0)
	require.True(t, r.Allowed)
	old := l.terms.Load()
	require.NoError(t, l.SetPolicy(broken{funnel(20, 1, time.Second), 1}))
	r.Cancel()
	assert.EqualValues(t, uint64(moved), old.word.Load())
}

// broken is a policy that returns a forbidden word.
type broken struct {
	policy.Policy
	word uint64
}

func (b broken) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if _, d := b.Policy.Take(word, now, n, patience); n == 0 || !d.Allowed {
		return word, d
	}
	return b.word, policy.Decision{Allowed: true, Limit: b.Limit()}
}

func (b broken) Choke(uint64, policy.Instant) (uint64, bool)                { return b.word, true }
func (b broken) Refund(uint64, policy.Instant, int64) uint64                { return b.word }
func (b broken) Reads(policy.Policy) bool                                   { return true }
func (b broken) Carry(policy.Policy, uint64, policy.Instant) (uint64, bool) { return b.word, true }
func (b broken) Cancel(uint64, uint64, policy.Instant, policy.Instant, int64, int64) uint64 {
	return b.word
}

// Promise: A policy breaking its contract admits nothing unrecorded.
func TestReservedWordsOfAWrongPolicy(t *testing.T) {
	for _, word := range []uint64{policy.MaxWord + 1, math.MaxUint64} {
		l := still(t, funnel(10, 1, time.Second))
		require.True(t, l.Take(4).Allowed)
		r := l.Reserve(1, 0)
		wrong := broken{funnel(10, 1, time.Second), word}
		l.terms.Load().policy, l.terms.Load().choker, l.terms.Load().refunder = wrong, wrong, wrong
		assert.False(t, l.Choke())
		assert.Equal(t, policy.Decision{Limit: 10, RetryAfter: policy.Never}, l.Take(1))
		assert.Equal(t, policy.Decision{Limit: 10, RetryAfter: policy.Never}, l.Refund(1))
		require.True(t, r.Allowed)
		// Cancel asks the policy then.
		l.terms.Load().returned.Add(1)
		r.Cancel()
		require.NoError(t, l.SetPolicy(wrong))
		assert.LessOrEqual(t, l.terms.Load().word.Load(), uint64(policy.MaxWord))
	}
}

// Promise: A policy that panics leaves a `Limiter` in order.
func TestPanicOfAPolicy(t *testing.T) {
	limit := &overtaken{Policy: funnel(10, 1, time.Hour)}
	l := still(t, limit)
	r := l.Reserve(2, 0)
	require.True(t, l.Choke())
	next := &overtaken{Policy: funnel(20, 1, time.Hour)}
	for name, call := range map[string]func(){
		"Choke": func() { l.Choke() }, "Take": func() { l.Take(1) }, "Refund": func() { l.Refund(1) }, "Cancel": r.Cancel,
		"SetPolicy": func() { _ = l.SetPolicy(next) },
	} {
		limit.meanwhile = func() { panic(name) }
		next.meanwhile = limit.meanwhile
		assert.PanicsWithValue(t, name, call)
		limit.meanwhile, next.meanwhile = nil, nil
		assert.EqualValues(t, 7, l.Peek(0).Remaining, name)
		assert.EqualValues(t, 7, l.Refund(0).Remaining, name)
	}
	require.NoError(t, l.SetPolicy(next))
	assert.EqualValues(t, 17, l.Peek(0).Remaining)
}

// Its line is gone when no call waits.
//
// Promise: Until calls wait a `Limiter` takes at most 256 bytes.
func TestMemoryIsBounded(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Limiter{})+unsafe.Sizeof(terms{}), uintptr(256))
	synctest.Test(t, func(t *testing.T) {
		l := must.Get(New(funnel(1, 1, time.Second)))
		require.True(t, l.Choke())
		assert.Nil(t, l.lines.Load(), "no call has waited")
		for range 3 {
			require.NoError(t, l.Wait(t.Context(), 1))
			assert.False(t, l.lines.Load().Has(struct{}{}))
		}
	})
}

// A give-back behind other calls rests on all that the take's receipt holds.
func TestReceiptHoldsTheTake(t *testing.T) {
	now := policy.Instant(time.Minute)
	l := must.Get(New(funnel(10, 1, time.Second), Clock(func() policy.Instant { return now })))
	now += policy.Instant(time.Minute)
	r := l.Reserve(4, 0)
	require.True(t, l.Choke())
	l.Refund(1)
	r.Cancel()
	assert.EqualValues(t, 10, l.Peek(0).Remaining, "the instant of the take")

	q := must.Get(New(policy.Must(policy.Queue(10, 1, time.Second)), Clock(func() policy.Instant { return now })))
	q.Take(3)
	q.Refund(1)
	last := q.Reserve(2, 0)
	before := last.Remaining + 2
	last.Cancel()
	assert.Equal(t, before, q.Peek(0).Remaining, "only what came back since counts")
}
