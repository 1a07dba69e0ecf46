package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// batch is the most asks or returns in an exchange.
const batch = 512

// runOwner talks to the bank. Its state is in the book: the next one continues if it dies.
func (l *Leases) runOwner(ctx context.Context) error {
	if l.lives++; l.lives > 1 {
		l.recover()
	}
	sweep := time.NewTimer(l.term() / partsOfTerm)
	defer sweep.Stop()
	questions := make([]question, 0, batch)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			l.reclaim()
			sweep.Reset(l.term() / partsOfTerm)
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

func (l *Leases) term() time.Duration { return l.plan.term(time.Duration(l.roundTrip.Load())) }

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
		if a.next.live(now) {
			left += a.next.units
		}
		extra := a.size(l.plan, now, left, need, servers, time.Duration(l.roundTrip.Load()))
		if !l.always {
			// Ask for no more than leases were of use so far: little is lost if no more calls come.
			l.use(a)
			a.saved-- // for the ask
			extra = min(extra, int64(max(2*a.saved, 1))*max(a.widest, 1))
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
	a.left.units, a.left.since = g.Decision.Remaining, now
	if end := l.plan.window(g); end != 0 {
		a.left.window = now.Add(time.Duration(end - g.At))
	}
	if g.Block.Left > 0 {
		// The block may be lifted early: ask again after a term.
		a.refused.times = 0
		l.refuse(a, ask.Key, now, 1, min(g.Block.Left, l.term()))
		return
	}
	if g.Granted <= 0 {
		l.refuse(a, ask.Key, now, ask.Need, g.Decision.RetryAfter)
		return
	}
	l.stats.Leases++
	l.stats.Leased += uint64(g.Granted)
	a.refused.units, a.refused.times = 0, 0
	if g.Granted < ask.Most {
		// The bank has no more. To ask for each unit that drains from now on would be exact mode.
		a.refused.units, a.refused.until = 1, now.Add(l.soon())
	}
	a.demand.got += g.Granted
	h := hold{
		units: g.Granted, sent: sent, end: sent.Add(l.plan.lasts(g, l.term())),
		window: l.plan.window(g), word: g.After, instant: g.At,
	}
	h.units -= l.serve(a, ask.Key, h, now)
	if h.units == 0 {
		return
	}
	if l.left(a.name) > 0 && (h.window == 0 || h.window != a.current.window) {
		if a.next.live(now) {
			h = h.with(a.next)
		}
		a.next = h
		return
	}
	l.install(a, h)
}

// serve gives units of h to the waiting calls in their order, and returns how many. The others are
// refused if the bank had no more, or asked for again. l.mu is held.
func (l *Leases) serve(a *account, key string, h hold, now time.Time) (given int64) {
	if !now.Before(h.end) {
		// The units came too late. Waiting calls may have time for another ask.
		l.stats.Lapsed += uint64(h.units)
		l.again(a, key)
		return h.units
	}
	rest := a.calls[:0]
	for _, c := range a.calls {
		switch {
		case c.gone:
		case c.n <= h.units-given:
			given += c.n
			c.reply(answer{Decision: policy.Decision{Allowed: true, Limit: l.plan.Limit(), ResetAfter: h.end.Sub(now)}})
		case a.refused.units > 0:
			c.reply(answer{Decision: l.refusedFor(a.refused.until.Sub(now))})
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
	r := &a.refused
	r.times++
	wait := max(min(retry, l.term()<<min(r.times-1, maxDoublings)), l.soon())
	r.units, r.until = need, now.Add(wait)
	l.stats.Refusals++
	rest := a.calls[:0]
	for _, c := range a.calls {
		if c.gone {
			continue
		}
		if c.n >= need {
			c.reply(answer{Decision: l.refusedFor(wait)})
		} else {
			rest = append(rest, c) // it came later and needs less
		}
	}
	clear(a.calls[len(rest):])
	a.calls = rest
	l.again(a, key)
}

// soon returns a refused key's shortest pause, random to spread the servers. l.mu is held.
func (l *Leases) soon() time.Duration {
	shortest := max(l.plan.pause, time.Duration(l.roundTrip.Load()))
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
	c.answer <- x // has a free slot: this is the only answer
}

// install writes a hold into the key's word. l.mu is held.
func (l *Leases) install(a *account, h hold) {
	p := grant{until: l.instant(h.end), units: h.units, add: h.window != 0 && h.window == a.current.window}
	if h.units > 1 {
		p.mark = markFor(min(max(a.demand.low, h.units/4), h.units/2))
	}
	l.use(a)
	lost, ok := l.write(a.name, p)
	if !ok {
		// The engine has no room: each call of this key asks the bank.
		l.stats.Lapsed += uint64(h.units)
		a.current = hold{}
		return
	}
	l.stats.Lapsed += uint64(lost)
	if p.add {
		h.units += a.current.units
	}
	a.current = h
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
		if l.use(a) > 0 || a.busy() || now.Before(a.refused.until.Add(l.term())) && a.refused.times > 0 {
			l.book.touch(a, now)
			continue
		}
		backs = l.close(a, now, backs, l.earned)
	}
	return backs, true
}

// close takes an account out of the book, and adds its holds to backs if worthIt. l.mu is held.
func (l *Leases) close(a *account, now time.Time, backs []Back, worthIt func(*account) bool) []Back {
	h := a.current
	if h.units > 0 { // a key without a word gets none
		h.units, _ = l.write(a.name, seizure{ended: h.window != 0}) // of this lease, or of its window
	}
	for _, h := range [...]hold{h, a.next} {
		if h.units == 0 {
			continue
		}
		b := Back{Name: a.name, Units: h.units, Word: h.word, At: h.instant, Age: now.Sub(h.sent)}
		if h.window == 0 && l.plan.worth(b.Units, b.Age) == 0 || !worthIt(a) {
			l.stats.Lapsed += uint64(h.units)
			continue
		}
		l.stats.Returned += uint64(h.units)
		backs = append(backs, b)
	}
	a.current, a.next = hold{}, hold{}
	l.book.remove(a)
	return backs
}

func (l *Leases) giveBack(ctx context.Context, backs []Back) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	_ = l.bank.Return(ctx, backs) // units that do not come back are lost, and were paid
}

func (l *Leases) faultAt(point string) {
	if l.fault != nil {
		l.fault(point)
	}
}
