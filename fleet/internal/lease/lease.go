package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

var (
	// ErrUnavailable says that the bank could not be asked. It is wrapped together with
	// the bank's own error.
	ErrUnavailable = errors.New("no lease could be taken")
	// ErrLate says that the bank did not answer within the call's budget.
	ErrLate = errors.New("no lease was granted within the budget")
	// ErrBusy says that too many keys wait for the bank.
	ErrBusy = errors.New("too many keys wait for a lease")
	// ErrFew says that so few calls come for the key that the bank should decide each by
	// itself, which costs no more than leases do. Such a decision must be one of
	// Plan.Policy. It is no failure.
	ErrFew = errors.New("too few calls for a lease")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the leases are closed")
)

// Config is what Leases are made with. Plan and Bank are required.
type Config struct {
	Plan *Plan
	Bank Bank
	// Name returns a text that stands for a key and for no other one, which is kept in place of
	// the key; nil keeps keys as they are.
	Name func(key string) string
	// MaxKeys bounds the keys that can hold a lease: as engine.Config.MaxKeys.
	MaxKeys int
	// Timeout bounds one exchange with the bank; 0 is a second.
	Timeout time.Duration
	// Servers tells how many share the limit, as far as is known; nil is 1. It is asked
	// once an exchange, must not block, and is used to size leases only: no number makes
	// the fleet admit more than the limit.
	Servers func() int
	// Blocked, if not nil, reports whether a refusal of the key is that of a block, for Stats. It
	// must not call the leases.
	Blocked func(key string) bool
	// OnEvent is told of starts, panics and restarts: see supervisor.Config.
	OnEvent func(supervisor.Event)

	fault  func(point string) // for tests to panic in
	seed   uint64             // of what is left to chance; 0 is any
	always bool               // whether keys of few calls are leased, too
}

// Stats counts.
type Stats struct {
	Exchanges uint64 // round trips to the bank, for leases
	Leases    uint64 // leases that were granted
	Leased    uint64 // units of these
	Refusals  uint64 // asks that were refused
	Returned  uint64 // units that were given back, of which those count that had not drained
	Lapsed    uint64 // units that were paid, and known to be lost
	Keys      int    // that have an account now

	Admitted uint64 // calls that were allowed
	Refused  uint64 // calls that were not; those in error are neither
	Blocked  uint64 // those of Refused whose key was blocked: see Config.Blocked
}

// Leases answers from leases, and keeps them up. Call New to make them, and Close to
// give back what is held. Its methods may be called by any number of goroutines.
type Leases struct {
	plan    *Plan
	bank    Bank
	name    func(key string) string
	words   *engine.Engine[string]
	epoch   time.Time // no earlier than that of words
	work    chan question
	timeout time.Duration
	servers func() int
	fault   func(string)
	always  bool

	lives   int          // of the owner, which alone looks at it
	trip    atomic.Int64 // how long an exchange takes of late, in nanoseconds; 0 before the first
	running *supervisor.Handle
	stop    context.CancelFunc // ends the owner when it has its answer
	base    context.Context    // of exchanges
	abort   context.CancelFunc // ends these
	once    sync.Once

	mu     sync.Mutex // no callers' code runs under it, but servers and blocked
	closed bool
	book   book
	random *rand.Rand
	stats  Stats // of Admitted and Refused, what the engine does not count
	// refused is the most that Stats has told.
	refused uint64
	blocked func(key string) bool
	// leaseWrites counts changes of words, which the engine counts as calls allowed.
	leaseWrites uint64

	nonAnswers atomic.Uint64 // calls refused by the engine's count that were not answered so
}

// queued is how many accounts may wait for the owner. One more is refused, if a call
// waits for it, or asked for later.
const queued = 8192

// New returns leases without a key.
func New(c Config) (*Leases, error) {
	if c.MaxKeys == 0 {
		c.MaxKeys = 1 << 20 // as package engine has it
	}
	words, err := engine.New[string](engine.Config{
		Policy:          wordPolicy{},
		MaxKeys:         c.MaxKeys,
		Idle:            4 * c.Plan.Term, // what has ended may be reclaimed yet
		WhenUnavailable: engine.Refuse,
		OpenTimeout:     time.Millisecond,
		OnEvent:         c.OnEvent,
	})
	if err != nil {
		return nil, err
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	l := &Leases{
		plan: c.Plan, bank: c.Bank, name: c.Name, words: words, epoch: time.Now(),
		work: make(chan question, queued), timeout: c.Timeout, servers: c.Servers, blocked: c.Blocked, fault: c.fault, always: c.always,
		book: newBook(c.MaxKeys), random: rand.New(rand.NewPCG(c.seed, 0)),
	}
	if l.timeout == 0 {
		l.timeout = time.Second
	}
	if l.name == nil {
		l.name = func(key string) string { return key }
	}
	if l.servers == nil {
		l.servers = func() int { return 1 }
	}
	s, err := supervisor.New(supervisor.Config{
		Name:      "ral/fleet leases",
		Intensity: 20, // in 10 seconds, as an engine's
		Period:    10 * time.Second,
		OnEvent:   c.OnEvent,
	}, supervisor.Child{Name: "owner", Run: l.runOwner, Shutdown: l.timeout + supervisor.DefaultShutdown})
	if err != nil {
		return nil, errors.Join(err, words.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.base, l.abort = context.WithCancel(context.Background())
	l.running = s.Start(ctx)
	return l, nil
}

// Try asks for n units for the key now, if this server can answer without the bank. If it
// cannot, ok is false, and nothing was taken: see Ask. It never waits.
//
// Remaining of an answer is what is left of this server's own lease, and ResetAfter
// until when that lasts. RetryAfter of a refused call is when this server will ask the
// bank again. It is no promise: others may be faster.
func (l *Leases) Try(key string, n int64) (d policy.Decision, ok bool) {
	name := l.name(key)
	return l.answered(key, name, n, l.words.Take(name, n))
}

// answered turns the engine's answer into the caller's. ok is false if the bank must be asked.
func (l *Leases) answered(key, name string, n int64, said policy.Decision) (d policy.Decision, ok bool) {
	x := unwrap(said)
	if !x.answers() || x.verdict == refused && (n < 1 || n > l.plan.Limit()) {
		if n != 0 { // the engine counts no look
			l.nonAnswers.Add(1)
		}
		return d, false
	}
	if x.verdict == takenLow {
		l.renew(key, name)
	}
	return x.answer(l.plan.Limit()), true
}

// Reserve is Try for a call that may give units back: what it holds goes back to the lease
// that it was taken from, while that lasts.
func (l *Leases) Reserve(key string, n int64) (d policy.Decision, held engine.Reservation[string], ok bool) {
	name := l.name(key)
	held = l.words.Reserve(name, n, 0)
	d, ok = l.answered(key, name, n, held.Decision)
	return d, held, ok
}

// Choke is Try for one unit, for a caller that wants to know no more than whether it is
// allowed. It costs less.
func (l *Leases) Choke(key string) (allowed, ok bool) {
	name := l.name(key)
	if l.words.Choke(name) {
		return true, true
	}
	if unwrap(l.words.Peek(name)).verdict == refused {
		return false, true // as the engine has counted
	}
	l.nonAnswers.Add(1)
	d, ok := l.answered(key, name, 1, l.words.Take(name, 1))
	return d.Allowed, ok
}

// renew asks for more before the lease has run out. It never waits.
func (l *Leases) renew(key, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, now := l.book.accounts[name], time.Now()
	if a == nil || a.asked || l.closed || a.next.live(now) || a.refused.units > 0 && now.Before(a.refused.until) {
		return
	}
	l.send(a, key)
}

// send puts the account of the key into the channel. l.mu is held.
func (l *Leases) send(a *account, key string) bool {
	if a.asked {
		return true
	}
	select {
	case l.work <- question{a, key}:
		a.asked = true
		return true
	default:
		return false
	}
}

// Ask is Try for a call that has tried in vain. It waits for the bank, if that has to be
// asked, for the budget at most, or until done is closed. The error is nil, ErrUnavailable,
// ErrLate, ErrBusy, ErrFew or ErrClosed; the decision means nothing then.
func (l *Leases) Ask(key string, n int64, budget time.Duration, done <-chan struct{}) (policy.Decision, error) {
	switch {
	case n == 0:
		return policy.Decision{Allowed: true, Limit: l.plan.Limit()}, nil
	case n < 0 || n > l.plan.Limit():
		l.mu.Lock()
		defer l.mu.Unlock()
		d := policy.Decision{Limit: l.plan.Limit(), RetryAfter: policy.Never}
		l.count(key, d)
		return d, nil
	}
	c, d, err := l.begin(key, n)
	if c == nil {
		return d, err
	}
	d, err = l.await(c, budget, done)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.count(key, d)
	}
	return d, err
}

// await waits for the answer to a call.
func (l *Leases) await(c *call, budget time.Duration, done <-chan struct{}) (policy.Decision, error) {
	timer := time.NewTimer(budget)
	defer timer.Stop()
	select {
	case x := <-c.answer:
		return x.Decision, x.err
	case <-timer.C:
	case <-done:
	case <-l.running.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.gone {
		x := <-c.answer // it came meanwhile
		return x.Decision, x.err
	}
	c.gone = true
	switch {
	case l.closed:
		return policy.Decision{}, ErrClosed
	case l.running.Err() != nil:
		return policy.Decision{}, ErrUnavailable
	}
	return policy.Decision{}, ErrLate
}

// begin answers from what is known already, or returns a call that waits.
func (l *Leases) begin(key string, n int64) (*call, policy.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, policy.Decision{}, ErrClosed
	}
	select {
	case <-l.running.Done():
		return nil, policy.Decision{}, ErrUnavailable
	default:
	}
	now, name := time.Now(), l.name(key)
	a, old := l.book.open(name, now)
	if a == nil {
		return nil, policy.Decision{}, ErrBusy
	}
	if old != nil {
		l.stats.Lapsed += uint64(old.next.units)
	}
	// Others may have been given units, or been refused, since this one looked.
	if x := unwrap(l.words.Take(name, n)); x.answers() {
		if x.verdict == takenLow && !a.next.live(now) {
			l.send(a, key)
		}
		return nil, x.answer(l.plan.Limit()), nil
	}
	l.nonAnswers.Add(1)
	if a.next.live(now) && a.next.units >= n {
		h := a.next
		a.next = hold{}
		a.saved++
		h.units -= n
		if h.units > 0 {
			l.install(a, h)
		}
		d := policy.Decision{Allowed: true, Limit: l.plan.Limit(), Remaining: h.units, ResetAfter: h.end.Sub(now)}
		l.count(key, d)
		return nil, d, nil
	}
	if r := a.refused; r.units > 0 && n >= r.units && now.Before(r.until) {
		if r.units == 1 {
			l.write(name, refusal{until: l.instant(r.until)})
		}
		d := l.refusedFor(r.until.Sub(now))
		l.count(key, d)
		return nil, d, nil
	}
	if !l.worthwhile(a, n, now) {
		return nil, policy.Decision{}, ErrFew
	}
	if !l.send(a, key) {
		return nil, policy.Decision{}, ErrBusy
	}
	c := &call{n: n, answer: make(chan answer, 1)}
	a.calls = append(a.calls, c)
	a.saved++
	return c, policy.Decision{}, nil
}

// worthwhile counts a call of n units that needs the bank, and those that the key's word
// answered since, and reports whether the key is worth a lease. Once the bank has refused it
// is until it grants: a refusal that is remembered answers calls as well. l.mu is held.
func (l *Leases) worthwhile(a *account, n int64, now time.Time) bool {
	if l.always {
		return true
	}
	a.widest = max(a.widest, n)
	recent := a.pace.add(1+l.use(a), now, l.term())
	if a.asked || len(a.calls) > 0 || a.refused.times > 0 {
		return true
	}
	l.book.touch(a, now)
	return recent >= worthwhile
}

// use returns how many calls, at least, the key's word answered since use looked last, and
// counts them as saved. l.mu is held.
func (l *Leases) use(a *account) (calls float64) {
	if a.current.units == 0 || a.widest == 0 {
		return 0
	}
	left, _ := l.write(a.name, inventory{})
	calls = float64(max(a.current.units-left, 0)) / float64(a.widest)
	a.current.units = left
	a.saved += calls
	return calls
}

// earned reports whether leases saved the commands that giving back costs, and spends them.
// l.mu is held.
func (l *Leases) earned(a *account) bool {
	if l.always {
		return true
	}
	if a.saved < backCost {
		return false
	}
	a.saved -= backCost
	return true
}

// write has a policy of ours change a key's word, and returns the units that the policy
// reports. ok is false if the engine has no room for the key. l.mu is held.
func (l *Leases) write(name string, p policy.Policy) (units int64, ok bool) {
	d := l.words.TakeWith(p, name, 1)
	if !d.Allowed {
		l.nonAnswers.Add(1)
		return 0, false
	}
	l.leaseWrites++
	return d.Remaining, true
}

// left returns how many units of the key's word can be used now.
func (l *Leases) left(name string) int64 { return unwrap(l.words.Peek(name)).units }

// count counts an answer to a call for the key. l.mu is held.
func (l *Leases) count(key string, d policy.Decision) {
	if d.Allowed {
		l.stats.Admitted++
		return
	}
	l.stats.Refused++
	if l.blocked != nil && l.blocked(key) {
		l.stats.Blocked++
	}
}

// Held is how many units of the key this server could use now without asking.
func (l *Leases) Held(key string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name(key)
	held := l.left(name)
	if a := l.book.accounts[name]; a != nil && a.next.live(time.Now()) {
		held += a.next.units
	}
	return held
}

// Refused returns for how much longer a call of one unit for the key is refused without asking
// the bank; 0 if it is not.
func (l *Leases) Refused(key string) time.Duration {
	name := l.name(key)
	if x := unwrap(l.words.Peek(name)); x.verdict == refused {
		return x.holds
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.book.accounts[name]; a != nil && a.refused.units == 1 {
		return max(time.Until(a.refused.until), 0)
	}
	return 0
}

// Forget drops what is held of a key, and what is known of it, for a key whose word was
// deleted.
func (l *Leases) Forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name(key)
	l.words.Reset(name)
	if a := l.book.accounts[name]; a != nil {
		a.current, a.next = hold{}, hold{}
		a.refused.units, a.refused.times = 0, 0
		a.left.at = time.Time{}
	}
}

// instant is a time by the engine's clock, or a little earlier.
func (l *Leases) instant(t time.Time) policy.Instant { return policy.Instant(t.Sub(l.epoch)) + 1 }

// Stats returns the counters.
func (l *Leases) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	counted := l.words.Stats()
	nonAnswers := l.nonAnswers.Load() // after the engine's count, which may lack some of these
	s.Keys = len(l.book.accounts)
	s.Admitted += counted.Admitted - l.leaseWrites
	// While calls go on this is less than were refused, and may be less than before. A counter
	// only grows.
	l.refused = max(l.refused, s.Refused+counted.Refused-min(counted.Refused, nonAnswers))
	s.Refused = l.refused
	return s
}

// Health returns nil while all is in order, restarts included; ErrClosed after Close;
// or why there will be no more leases, in which case calls that need one get
// ErrUnavailable. That the bank cannot be reached is no matter of health.
func (l *Leases) Health() error {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if err := l.running.Err(); err != nil {
		return err
	}
	return l.words.Health()
}

// Close waits for the answer that is under way, gives back what is held, for both of
// which it has ctx's time, and ends the goroutines. Calls from then on, and those that
// wait, get ErrClosed. It may be called more than once.
func (l *Leases) Close(ctx context.Context) error {
	l.once.Do(func() { l.end(ctx, true) })
	return l.words.Close()
}

// end ends the owner. If it is not to give anything back, it is as if the server died.
func (l *Leases) end(ctx context.Context, give bool) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	defer l.abort()
	defer context.AfterFunc(ctx, l.abort)()
	l.stop()
	<-l.running.Done()
	for give {
		backs := l.remaining()
		if len(backs) == 0 {
			break
		}
		if ctx.Err() == nil {
			l.giveBack(ctx, backs)
		}
	}
}

// remaining takes up to a batch of holds out of the book, also of keys that calls wait for.
// It returns none when the book is empty.
func (l *Leases) remaining() (backs []Back) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(backs) < batch {
		a := l.book.first()
		if a == nil {
			break
		}
		backs = l.close(a, time.Now(), backs, func(*account) bool { return true })
	}
	return backs
}
