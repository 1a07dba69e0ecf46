package waitline

import (
	"context"
	"errors"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

var (
	errNever  = errors.New("never")
	errNoRoom = errors.New("no room")
)

type state struct {
	policy policy.Policy
	word   uint64
}

// desk is a key with a limit. A desk counts its calls' actions.
type desk struct {
	mu        sync.Mutex
	policy    policy.Policy
	word      uint64
	began     time.Time
	forecasts int
	// panics names the method of a call that panics, once.
	panics string
	// skew is how far the clock of the limit is ahead.
	skew atomic.Int64
	// notBefore has the instants of all tries to take.
	notBefore []int64
	// starts has the instants of the tries that took.
	starts []int64
}

func newDesk(p policy.Policy) *desk { return &desk{policy: p, began: time.Now()} }

func (d *desk) now() int64 { return int64(time.Since(d.began)) + d.skew.Load() + 1 }

func (d *desk) panicIn(method string) {
	if d.panics == method {
		d.panics = ""
		panic(method)
	}
}

func (d *desk) take(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, decision := d.policy.Take(d.word, policy.Instant(d.now()), n, 0)
	d.word = next
	return decision.Allowed
}

// refund gives back without a reservation.
func (d *desk) refund(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.word = d.policy.(policy.Refunder).Refund(d.word, policy.Instant(d.now()), n)
}

func (d *desk) change(t *testing.T, p policy.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, ok := p.(policy.Relative).Carry(d.policy, d.word, policy.Instant(d.now()))
	assert.True(t, ok)
	d.policy, d.word = p, next
}

// steps returns the forecasts since the last call, each for a waiting call.
func (d *desk) steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.forecasts
	d.forecasts = 0
	return n
}

// customer is a call at a desk. A nil limit is the desk's own.
type customer struct {
	*desk
	n             int64
	limit         policy.Policy
	before, after uint64
	at            policy.Instant
}

func (c *customer) policyOf(s state) policy.Policy {
	if c.limit != nil {
		return c.limit
	}
	return s.policy
}

func (c *customer) State() (state, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panicIn("State")
	return state{c.policy, c.word}, c.now()
}

func (c *customer) Forecast(s state, instant int64) (state, time.Duration, Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panicIn("Forecast")
	c.forecasts++
	next, d := c.policyOf(s).Take(s.word, policy.Instant(instant), c.n, Forever)
	verdict := NoRoom
	switch {
	case d.Allowed:
		verdict = Fits
	case d.RetryAfter == policy.Never:
		verdict = Never
	}
	return state{s.policy, next}, d.Wait, verdict
}

func (c *customer) Alike(other Call[state]) bool { return c.limit == other.(*customer).limit }

func (c *customer) Take(patience time.Duration, notBefore int64) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panicIn("Take")
	c.notBefore = append(c.notBefore, notBefore)
	now := policy.Instant(c.now())
	next, d := c.policyOf(state{c.policy, c.word}).Take(c.word, now, c.n, patience)
	start := int64(now) + int64(d.Wait)
	switch {
	case !d.Allowed && d.RetryAfter == policy.Never:
		return Answer{Err: errNever}
	case !d.Allowed:
		return Answer{RetryIn: d.RetryAfter}
	case start < notBefore:
		return Answer{RetryIn: time.Duration(notBefore - int64(now))}
	}
	c.starts = append(c.starts, start)
	c.before, c.after, c.at, c.word = c.word, next, now, next
	return Answer{Taken: true, Wait: d.Wait, Start: start}
}

func (c *customer) GiveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panicIn("GiveBack")
	if c.word == c.after {
		c.word = c.before
		return
	}
	c.word = c.policy.(policy.Refunder).Cancel(c.word, c.after, c.at, policy.Instant(c.now()), c.n, 1<<62)
}

func (c *customer) Refusal(verdict Verdict) error {
	if verdict == Never {
		return errNever
	}
	return errNoRoom
}

// hall is a set of lines.
type hall[K comparable] struct {
	*Lines[K, state]
	done chan struct{}
}

func newHall[K comparable](t *testing.T, perKey, total int) hall[K] {
	seed, done := maphash.MakeSeed(), make(chan struct{})
	h := hall[K]{New[K, state](Options[K]{
		Hash: func(key K) (hash uint64, ok bool) {
			if kind := reflect.TypeOf(any(key)); !kind.Comparable() {
				return 0, false
			}
			return maphash.Comparable(seed, key), true
		},
		MaxPerKey: perKey, MaxTotal: total, Done: done,
	}), done}
	t.Cleanup(func() { h.empty(t) })
	return h
}

// empty checks that no line is left.
func (h hall[K]) empty(t *testing.T) {
	t.Helper()
	assert.Zero(t, h.lines.Size(), "lines are left")
	assert.Zero(t, h.count.Load(), "lines are counted")
	assert.Zero(t, h.waiting.Load(), "calls are counted")
	assert.Zero(t, h.paused.Load(), "pauses are in force")
}

// ends is the end of a call of Wait.
type ends struct {
	// after is the time since its desk was made.
	after    time.Duration
	waited   time.Duration
	err      error
	panicked any
	over     bool
}

// send has a call for n units wait on its own goroutine, asleep when send returns. The result is
// filled in when the call ends.
func (h hall[K]) send(ctx context.Context, key K, d *desk, n int64, patience time.Duration) *ends {
	return h.sendUnder(ctx, key, d, n, patience, nil)
}

func (h hall[K]) sendUnder(
	ctx context.Context, key K, d *desk, n int64, patience time.Duration, limit policy.Policy,
) *ends {
	return h.sendCall(ctx, key, d, &customer{desk: d, n: n, limit: limit}, patience)
}

func (h hall[K]) sendCall(ctx context.Context, key K, d *desk, call Call[state], patience time.Duration) *ends {
	e := &ends{}
	go func() {
		defer func() {
			e.panicked = recover()
			e.after, e.over = time.Since(d.began), true
		}()
		e.waited, e.err = h.Wait(ctx, key, call, patience)
	}()
	synctest.Wait()
	return e
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

// families has two limits of each family, with turns some tenths of a second apart.
func families() [][2]policy.Policy {
	s := time.Second
	return [][2]policy.Policy{
		{funnel(10, 4, s), funnel(6, 9, s)},
		{policy.Must(policy.FixedWindow(10, 3*s)), policy.Must(policy.FixedWindow(7, s))},
		{policy.Must(policy.SlidingWindow(10, 3*s)), policy.Must(policy.SlidingWindow(7, s))},
		{policy.Must(policy.AtMost(10, 3*s)), policy.Must(policy.AtMost(7, s))},
		{policy.Must(policy.AtMost(10, s)), policy.Must(policy.AtMost(4, s))},
		{policy.Must(policy.Queue(60, 4, s)), policy.Must(policy.Queue(40, 9, s))},
		{policy.Must(policy.Bursty(4, s, 3)), policy.Must(policy.Bursty(9, s, 2))},
		{policy.Must(policy.WarmingUp(4, s, 3*s, 3)), policy.Must(policy.WarmingUp(9, s, 2*s, 3))},
	}
}
