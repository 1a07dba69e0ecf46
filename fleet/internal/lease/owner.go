package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/lease/word"
	"github.com/ral-limiter/ral/policy"
)

// batch is the most asks or returns in an exchange.
const batch = 512

// runOwner talks to the bank. Its state is in the book: the next one continues if it dies.
func (l *Leases) runOwner(ctx context.Context) error {
	if l.lives++; l.lives > 1 {
		l.recover()
	}
	sweep := time.NewTimer(l.term() / plan.PartsOfTerm)
	defer sweep.Stop()
	questions := make([]question, 0, batch)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			l.reclaim()
			sweep.Reset(l.term() / plan.PartsOfTerm)
			continue
		case q := <-l.work:
			questions = append(questions[:0], q)
		}
		for more := true; more && len(questions) < batch; {
			select {
			case q := <-l.work:
				questions = append(questions, q)
			default:
				more = false
			}
		}
		l.exchange(questions)
		clear(questions)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// recover answers calls whose question died with the last owner.
func (l *Leases) recover() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.book.accounts {
		if a.pending {
			l.fail(a, errDied)
		}
	}
}

var errDied = errors.New("the goroutine that talks to the bank died and was restarted")

func (l *Leases) exchange(questions []question) {
	l.faultAt("exchange: begin")
	asks := l.asks(questions)
	ctx, cancel := context.WithTimeout(l.base, l.timeout)
	defer cancel()
	sent := time.Now()
	grants := l.bank.Lease(ctx, asks)
	l.faultAt("exchange: answered")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Exchanges++
	l.measure(time.Since(sent), grants)
	for i, q := range questions {
		if i >= len(grants) {
			l.fail(q.account, errors.New("the bank gave no answer"))
			continue
		}
		l.answer(q.account, sent, asks[i], grants[i])
	}
}

// measure updates roundTrip. Longer exchanges weigh more, so that leases seldom come too late. l.mu is
// held.
func (l *Leases) measure(took time.Duration, grants []Grant) {
	if !slices.ContainsFunc(grants, func(g Grant) bool { return g.Err == nil }) {
		return
	}
	roundTrip := time.Duration(l.roundTrip.Load())
	switch d := took - roundTrip; {
	case roundTrip == 0:
		roundTrip = took
	case d > 0:
		roundTrip += d / 2
	default:
		roundTrip += d / 8
	}
	l.roundTrip.Store(int64(roundTrip))
}

func (l *Leases) term() time.Duration { return l.plan.TermAt(time.Duration(l.roundTrip.Load())) }

func (l *Leases) asks(questions []question) []Ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	servers := l.servers()
	asks := make([]Ask, 0, len(questions))
	for _, q := range questions {
		a := q.account
		need, smallest := int64(0), int64(0)
		for _, c := range a.calls {
			if c.gone {
				continue
			}
			if need += c.n; smallest == 0 || c.n < smallest {
				smallest = c.n
			}
		}
		left := l.left(a.name)
		if a.Next.Live(now) {
			left += a.Next.Units
		}
		extra := a.Size(l.plan, now, left, need, servers, time.Duration(l.roundTrip.Load()))
		if !l.always {
			extra = min(extra, a.Afford(l.inventory(a)))
		}
		most := max(need+extra, 1)
		asks = append(asks, Ask{Key: q.key, Need: max(smallest, 1), Most: min(most, max(l.plan.Limit(), 1))})
	}
	return asks
}

// answer handles the bank's answer on an account. l.mu is held.
func (l *Leases) answer(a *account, sent time.Time, ask Ask, g Grant) {
	if g.Err != nil {
		l.fail(a, g.Err)
		return
	}
	a.pending = false
	now := time.Now()
	l.book.touch(a, now)
	a.Learn(l.plan, g, now)
	if g.Block.Left > 0 {
		// The block may be lifted early: ask again after a term.
		a.ForgetRefusals()
		l.refuse(a, ask.Key, now, 1, min(g.Block.Left, l.term()))
		return
	}
	if g.Granted <= 0 {
		l.refuse(a, ask.Key, now, ask.Need, g.Decision.RetryAfter)
		return
	}
	l.stats.Leases++
	l.stats.Leased += uint64(g.Granted)
	h := a.Granted(l.plan, g, sent, l.term())
	if g.Granted < ask.Most {
		a.Exhausted(now.Add(l.soon()))
	}
	h.Units -= l.serve(a, ask.Key, h, now)
	if h.Units > 0 && !a.Queue(h, l.left(a.name), now) {
		l.install(a, h)
	}
}

// serve gives units of h to the waiting calls in their order, and returns how many. The others are
// refused if the bank had no more, or asked for again. l.mu is held.
func (l *Leases) serve(a *account, key string, h plan.Hold, now time.Time) (given int64) {
	if !now.Before(h.End) {
		// The units came too late. Waiting calls may have time for another ask.
		l.stats.Lapsed += uint64(h.Units)
		l.again(a, key)
		return h.Units
	}
	until, exhausted := a.Refused(math.MaxInt64, now)
	rest := a.calls[:0]
	for _, c := range a.calls {
		switch {
		case c.gone:
		case c.n <= h.Units-given:
			given += c.n
			c.reply(answer{Decision: policy.Decision{Allowed: true, Limit: l.plan.Limit(), ResetAfter: h.End.Sub(now)}})
		case exhausted:
			c.reply(answer{Decision: l.refusedFor(until.Sub(now))})
		default:
			rest = append(rest, c)
		}
	}
	clear(a.calls[len(rest):])
	if a.calls = rest; len(rest) > 0 {
		l.again(a, key)
	}
	return given
}

// again asks once more for the waiting calls of an account, or fails them. l.mu is held.
func (l *Leases) again(a *account, key string) {
	if len(a.calls) > 0 && !l.send(a, key) {
		l.fail(a, ErrBusy)
	}
}

// refuse remembers a refusal and answers waiting calls. The next call writes it into the key's
// word. l.mu is held.
func (l *Leases) refuse(a *account, key string, now time.Time, need int64, retry time.Duration) {
	wait := a.Refuse(need, retry, l.term(), l.soon(), now)
	l.stats.Refusals++
	rest := a.calls[:0]
	for _, c := range a.calls {
		if c.gone {
			continue
		}
		if c.n >= need {
			c.reply(answer{Decision: l.refusedFor(wait)})
		} else {
			// The call came later and needs less.
			rest = append(rest, c)
		}
	}
	clear(a.calls[len(rest):])
	a.calls = rest
	l.again(a, key)
}

// soon returns a refused key's shortest pause, random to spread the servers. l.mu is held.
func (l *Leases) soon() time.Duration {
	shortest := max(l.plan.Pause, time.Duration(l.roundTrip.Load()))
	return shortest + time.Duration(l.random.Int64N(int64(shortest/4)+1))
}

func (l *Leases) refusedFor(wait time.Duration) policy.Decision {
	return policy.Decision{Limit: l.plan.Limit(), RetryAfter: wait, ResetAfter: wait}
}

// fail answers the waiting calls with an error. l.mu is held.
func (l *Leases) fail(a *account, err error) {
	a.pending = false
	switch {
	case l.closed:
		err = ErrClosed
	case !errors.Is(err, ErrBusy):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, c := range a.calls {
		if !c.gone {
			c.reply(answer{err: err})
		}
	}
	clear(a.calls)
	a.calls = a.calls[:0]
}

func (c *call) reply(x answer) {
	c.gone = true
	// The answer has a free slot, as it is the only answer.
	c.answer <- x
}

// install writes a hold into the key's word. l.mu is held.
func (l *Leases) install(a *account, h plan.Hold) {
	p := word.Grant{Until: l.instant(h.End), Units: h.Units, Add: a.Adds(h)}
	if h.Units > 1 {
		p.Mark = word.MarkFor(a.Low(h.Units))
	}
	a.Use(l.inventory(a))
	lost, ok := l.write(a.name, p)
	if !ok {
		// The engine has no room: each call of this key asks the bank.
		l.stats.Lapsed += uint64(h.Units)
		a.Current = plan.Hold{}
		return
	}
	l.stats.Lapsed += uint64(lost)
	if p.Add {
		h.Units += a.Current.Units
	}
	a.Current = h
}

// reclaim gives back long unused units and forgets keys without recent calls, in batches.
func (l *Leases) reclaim() {
	for {
		backs, more := l.idle()
		if len(backs) > 0 {
			l.giveBack(l.base, backs)
		}
		if !more || l.base.Err() != nil {
			return
		}
	}
}

// idle takes up to a batch of accounts without a call for half a term out of the book.
func (l *Leases) idle() (backs []Back, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for range batch {
		a := l.book.first()
		if a == nil || now.Sub(a.touched) < l.term()/2 {
			return backs, false
		}
		// Calls that the key's word answers do not touch the account.
		if a.Use(l.inventory(a)) > 0 || a.busy() || a.RefusedLately(now, l.term()) {
			l.book.touch(a, now)
			continue
		}
		backs = l.close(a, now, backs, l.earned)
	}
	return backs, true
}

// close takes an account out of the book, and adds its holds to backs if worthIt. l.mu is held.
func (l *Leases) close(a *account, now time.Time, backs []Back, worthIt func(*account) bool) []Back {
	h := a.Current
	// A key without a word gets no units.
	if h.Units > 0 {
		// The units are of this lease, or of its window.
		h.Units, _ = l.write(a.name, word.Seizure{Ended: h.Window != 0})
	}
	for _, h := range [...]plan.Hold{h, a.Next} {
		if h.Units == 0 {
			continue
		}
		b := Back{Name: a.name, Units: h.Units, Word: h.Word, At: h.Instant, Age: now.Sub(h.Sent)}
		if h.Window == 0 && l.plan.Worth(b.Units, b.Age) == 0 || !worthIt(a) {
			l.stats.Lapsed += uint64(h.Units)
			continue
		}
		l.stats.Returned += uint64(h.Units)
		backs = append(backs, b)
	}
	a.Current, a.Next = plan.Hold{}, plan.Hold{}
	l.book.remove(a)
	return backs
}

func (l *Leases) giveBack(ctx context.Context, backs []Back) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	// Units that do not come back are lost, and were paid.
	_ = l.bank.Return(ctx, backs)
}

func (l *Leases) faultAt(point string) {
	if l.fault != nil {
		l.fault(point)
	}
}
