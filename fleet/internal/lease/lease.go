package lease

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/lease/word"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

var (
	// ErrUnavailable says that the bank could not be asked. It wraps the bank's error too.
	ErrUnavailable = errors.New("no lease could be taken")
	// ErrLate says that the bank did not answer within the call's budget.
	ErrLate = errors.New("no lease was granted within the budget")
	// ErrBusy says that too many keys wait for the bank.
	ErrBusy = errors.New("too many keys wait for a lease")
	// ErrFew says that the key has too few calls for a lease: the bank should decide each, under
	// plan.Plan.Policy, at no higher cost. It is no failure.
	ErrFew = errors.New("too few calls for a lease")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the leases are closed")
)

// Config configures [New]. Plan, Bank, Name, Timeout and Servers are required.
type Config struct {
	Plan *plan.Plan
	Bank Bank
	// Name returns a unique text that is kept instead of the key.
	Name func(key string) string
	// MaxKeys bounds the keys that can hold a lease: as engine.Config.MaxKeys.
	MaxKeys int
	// Timeout bounds one exchange with the bank.
	Timeout time.Duration
	// Servers returns about how many servers share the limit. It is called once an
	// exchange and must not block. It only sizes leases: the limit holds whatever it returns.
	Servers func() int
	// Blocked, if not nil, reports whether a refusal of the key is by a block, for Stats. It must
	// not call the leases.
	Blocked func(key string) bool
	// OnEvent receives starts, panics and restarts: see supervisor.Config.
	OnEvent func(supervisor.Event)

	// fault, if not nil, is called at named points, at which tests panic.
	fault func(point string)
	// seed is 0 for any seed.
	seed uint64
	// always also leases keys with few calls.
	always bool
}

// Stats counts since New, except Keys.
type Stats struct {
	// Exchanges counts the round trips to the bank, for leases.
	Exchanges uint64
	// Leases counts the granted leases.
	Leases uint64
	// Leased counts the granted units.
	Leased uint64
	// Refusals counts the refused asks.
	Refusals uint64
	// Returned counts the units given back, drained or not.
	Returned uint64
	// Lapsed counts the paid units known to be lost.
	Lapsed uint64
	// Keys is the number of keys with an account now.
	Keys int

	// Admitted counts the allowed calls.
	Admitted uint64
	// Refused counts the refused calls. A call in error is neither admitted nor refused.
	Refused uint64
	// Blocked counts the refused calls of blocked keys: see Config.Blocked.
	Blocked uint64
}

// Leases answers calls from leases, and renews them. [New] makes it; Close gives the unused units
// back. Any number of goroutines may call its methods.
type Leases struct {
	config Config
	plan   *plan.Plan
	words  *engine.Engine[string]
	// epoch is not before the epoch of words.
	epoch time.Time
	work  chan question

	// lives counts the starts of the owner. Only the owner uses it.
	lives int
	// roundTrip is the recent time of an exchange in nanoseconds, or 0 before the first.
	roundTrip atomic.Int64
	running   *supervisor.Handle
	// stop ends the owner after its answer.
	stop context.CancelFunc
	// base is the context of exchanges.
	base context.Context
	// abort cancels base.
	abort context.CancelFunc
	once  sync.Once

	// mu is held during the callers' functions Config.Servers and Config.Blocked, and during no other
	// code of callers.
	mu     sync.Mutex
	closed bool
	book   book
	random *rand.Rand
	// stats.Admitted lacks the calls that the engine counts, and stats.Refused lacks the calls that
	// refusals counts.
	stats Stats
	// leaseWrites counts changes of words. The engine counts them as admitted.
	leaseWrites uint64

	// refusals counts calls refused by their word. The engine also counts refused calls that no word
	// answered.
	refusals cell.Tally
}

// queued bounds the accounts that wait for the owner. For one more account, a call that would wait
// gets ErrBusy, and a renewal is left to a later call.
const queued = 8192

// New returns leases without keys.
func New(config Config) (*Leases, error) {
	// The default is that of package engine.
	config.MaxKeys = cmp.Or(config.MaxKeys, 1<<20)
	words, err := engine.New[string](engine.Config{
		Policy:  word.Policy{},
		MaxKeys: config.MaxKeys,
		// An ended word may have units to reclaim.
		Idle:            4 * config.Plan.Term,
		WhenUnavailable: engine.Refuse,
		OpenTimeout:     time.Millisecond,
		OnEvent:         config.OnEvent,
	})
	if err != nil {
		return nil, err
	}
	leases := &Leases{
		config: config, plan: config.Plan, words: words, epoch: time.Now(), work: make(chan question, queued),
		book: book{accounts: map[string]*account{}, order: list.New(), maxAccounts: config.MaxKeys}, random: rand.New(rand.NewPCG(cmp.Or(config.seed, rand.Uint64()), 0)),
	}
	s, err := supervisor.New(supervisor.Config{
		Name: "ral/fleet leases",
		// An engine also has 20 restarts in 10 seconds.
		Intensity: 20,
		Period:    10 * time.Second,
		OnEvent:   config.OnEvent,
	}, supervisor.Child{Name: "owner", Run: leases.runOwner, Shutdown: config.Timeout + supervisor.DefaultShutdown})
	if err != nil {
		return nil, errors.Join(err, words.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	leases.stop = stop
	leases.base, leases.abort = context.WithCancel(context.Background())
	leases.running = s.Start(ctx)
	return leases, nil
}

// Try takes n units for the key if this server can decide without the bank. It never waits. If ok
// is false, nothing was taken: see Ask.
//
// Remaining is the rest of this server's own lease, and ResetAfter its end. RetryAfter of a refused
// call is when this server asks the bank again. It is no promise: others may be faster.
func (l *Leases) Try(key string, n int64) (decision policy.Decision, ok bool) {
	name := l.config.Name(key)
	return l.answered(key, name, n, l.words.Take(name, n))
}

// answered converts the engine's decision. ok is false if the bank must be asked.
func (l *Leases) answered(key, name string, n int64, said policy.Decision) (decision policy.Decision, ok bool) {
	x := word.Unwrap(said)
	if !x.Answers() || x.Verdict == word.Refused && (n < 1 || n > l.plan.Limit()) {
		return decision, false
	}
	switch x.Verdict {
	case word.TakenLow:
		l.renew(key, name)
	case word.Refused:
		l.refusals.CountRefused()
	}
	return x.Answer(l.plan.Limit()), true
}

// Reserve is Try for a call that may give units back: they return to their lease while that lasts.
func (l *Leases) Reserve(key string, n int64) (decision policy.Decision, reservation engine.Reservation[string], ok bool) {
	name := l.config.Name(key)
	reservation = l.words.Reserve(name, n, 0)
	decision, ok = l.answered(key, name, n, reservation.Decision)
	return decision, reservation, ok
}

// Choke is Try for one unit without details. It costs less.
func (l *Leases) Choke(key string) (allowed, ok bool) {
	name := l.config.Name(key)
	if l.words.Choke(name) {
		return true, true
	}
	if word.Unwrap(l.words.Peek(name, 0)).Verdict == word.Refused {
		l.refusals.CountRefused()
		return false, true
	}
	decision, ok := l.answered(key, name, 1, l.words.Take(name, 1))
	return decision.Allowed, ok
}

// renew asks for more before the lease has run out. It never waits.
func (l *Leases) renew(key, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	account, now := l.book.accounts[name], time.Now()
	if account == nil || account.pending || l.closed || account.Next.Live(now) {
		return
	}
	if _, refused := account.Refused(math.MaxInt64, now); refused {
		return
	}
	l.send(account, key)
}

// send puts the account into the channel. l.mu is held.
func (l *Leases) send(account *account, key string) bool {
	if account.pending {
		return true
	}
	select {
	case l.work <- question{account, key}:
		account.pending = true
		return true
	default:
		return false
	}
}

// Ask decides a call for which Try returned ok false. It waits for the bank if it must, up to the
// budget or until done is closed. The error is nil, ErrUnavailable, ErrLate, ErrBusy, ErrFew or
// ErrClosed; if it is not nil, the decision means nothing.
func (l *Leases) Ask(key string, n int64, budget time.Duration, done <-chan struct{}) (policy.Decision, error) {
	switch {
	case n == 0:
		return policy.Decision{Allowed: true, Limit: l.plan.Limit()}, nil
	case n < 0 || n > l.plan.Limit():
		l.mu.Lock()
		defer l.mu.Unlock()
		decision := policy.Decision{Limit: l.plan.Limit(), RetryAfter: policy.Never}
		l.count(key, decision)
		return decision, nil
	}
	call, decision, err := l.begin(key, n)
	if call == nil {
		return decision, err
	}
	decision, err = l.await(call, budget, done)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.count(key, decision)
	}
	return decision, err
}

func (l *Leases) await(call *call, budget time.Duration, done <-chan struct{}) (policy.Decision, error) {
	timer := time.NewTimer(budget)
	defer timer.Stop()
	select {
	case answer := <-call.answer:
		return answer.Decision, answer.err
	case <-timer.C:
	case <-done:
	case <-l.running.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if call.gone {
		// The answer came meanwhile.
		answer := <-call.answer
		return answer.Decision, answer.err
	}
	call.gone = true
	switch {
	case l.closed:
		return policy.Decision{}, ErrClosed
	case l.running.Err() != nil:
		return policy.Decision{}, ErrUnavailable
	}
	return policy.Decision{}, ErrLate
}

// begin answers at once if it can, or returns a call that waits.
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
	now, name := time.Now(), l.config.Name(key)
	account, old := l.book.open(name, now)
	if account == nil {
		return nil, policy.Decision{}, ErrBusy
	}
	if old != nil {
		l.stats.Lapsed += uint64(old.Next.Units)
	}
	// The word may have changed since Try.
	if decision := word.Unwrap(l.words.Take(name, n)); decision.Answers() {
		if decision.Verdict == word.TakenLow && !account.Next.Live(now) {
			l.send(account, key)
		}
		if decision.Verdict == word.Refused {
			l.refusals.CountRefused()
		}
		return nil, decision.Answer(l.plan.Limit()), nil
	}
	if account.Next.Live(now) && account.Next.Units >= n {
		hold := account.Next
		account.Next = plan.Hold{}
		account.CountAnswered()
		hold.Units -= n
		if hold.Units > 0 {
			l.install(account, hold)
		}
		decision := policy.Decision{Allowed: true, Limit: l.plan.Limit(), Remaining: hold.Units, ResetAfter: hold.End.Sub(now)}
		l.count(key, decision)
		return nil, decision, nil
	}
	if until, refused := account.Refused(n, now); refused {
		if _, all := account.Refused(1, now); all {
			l.write(name, word.Refusal{Until: l.instant(until)})
		}
		decision := l.refusedFor(until.Sub(now))
		l.count(key, decision)
		return nil, decision, nil
	}
	if !l.config.always && !account.Worthwhile(n, l.inventory(account), now, l.term()) && !account.busy() {
		l.book.touch(account, now)
		return nil, policy.Decision{}, ErrFew
	}
	if !l.send(account, key) {
		return nil, policy.Decision{}, ErrBusy
	}
	c := &call{n: n, answer: make(chan answer, 1)}
	account.calls = append(account.calls, c)
	account.CountAnswered()
	return c, policy.Decision{}, nil
}

// inventory returns the units in the key's word, ended or not. l.mu is held.
func (l *Leases) inventory(account *account) (units int64) {
	if account.Current.Units > 0 {
		units, _ = l.write(account.name, word.Inventory{})
	}
	return units
}

// earned reports whether leases saved the commands of a return, and spends them. l.mu is held.
func (l *Leases) earned(account *account) bool { return l.config.always || account.Earned() }

// write changes a key's word by a policy of this package, and returns the units that it reports. ok
// is false if the engine has no room for the key. l.mu is held.
func (l *Leases) write(name string, limit policy.Policy) (units int64, ok bool) {
	decision := l.words.TakeWith(limit, name, 1)
	if !decision.Allowed {
		return 0, false
	}
	l.leaseWrites++
	return decision.Remaining, true
}

func (l *Leases) left(name string) int64 { return word.Unwrap(l.words.Peek(name, 0)).Units }

// count counts an answer. l.mu is held.
func (l *Leases) count(key string, decision policy.Decision) {
	if decision.Allowed {
		l.stats.Admitted++
		return
	}
	l.stats.Refused++
	if l.config.Blocked != nil && l.config.Blocked(key) {
		l.stats.Blocked++
	}
}

// Held returns how many units of the key this server could use now without asking.
func (l *Leases) Held(key string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.config.Name(key)
	units := l.left(name)
	if account := l.book.accounts[name]; account != nil && account.Next.Live(time.Now()) {
		units += account.Next.Units
	}
	return units
}

// Refused returns how much longer one unit of the key is refused without asking the bank, or 0.
func (l *Leases) Refused(key string) time.Duration {
	name := l.config.Name(key)
	if decision := word.Unwrap(l.words.Peek(name, 0)); decision.Verdict == word.Refused {
		return decision.Holds
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if account := l.book.accounts[name]; account != nil {
		if until, refused := account.Refused(1, time.Now()); refused {
			return time.Until(until)
		}
	}
	return 0
}

// Forget drops the units and the state of a key whose word was deleted.
func (l *Leases) Forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.config.Name(key)
	l.words.Reset(name)
	if account := l.book.accounts[name]; account != nil {
		account.Forget()
	}
}

// instant converts t to the engine's clock, or slightly earlier.
func (l *Leases) instant(t time.Time) policy.Instant { return policy.Instant(t.Sub(l.epoch)) + 1 }

// Stats returns the counters.
func (l *Leases) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := l.stats
	stats.Keys = len(l.book.accounts)
	stats.Admitted += l.words.Stats().Admitted - l.leaseWrites
	stats.Refused += l.refusals.Refused()
	return stats
}

// Health returns nil while all is in order, restarts included, and ErrClosed after Close. Other
// errors mean no more leases: calls that need one get ErrUnavailable. An unreachable bank is no
// error here.
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

// Close waits for the answer under way, gives back unused units, both until ctx ends, and ends the
// goroutines. Later and waiting calls get ErrClosed. It may be called more than once.
func (l *Leases) Close(ctx context.Context) error {
	l.once.Do(func() { l.shutDown(ctx, true) })
	return l.words.Close()
}

// shutDown ends the owner, and gives the unused units back if give is true. If give is false, it is like
// the death of the server.
func (l *Leases) shutDown(ctx context.Context, give bool) {
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

// remaining takes accounts out of the book, until it has a batch of holds to give back or the book
// is empty.
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
