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

// runOwner talks to the bank. Its state is in the book, so that the next owner continues if this
// one dies.
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
		case question := <-l.work:
			questions = append(questions[:0], question)
		}
		for more := true; more && len(questions) < batch; {
			select {
			case question := <-l.work:
				questions = append(questions, question)
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
	for _, account := range l.book.accounts {
		if account.pending {
			l.fail(account, errDied)
		}
	}
}

var errDied = errors.New("the goroutine that talks to the bank died and was restarted")

func (l *Leases) exchange(questions []question) {
	l.faultAt("exchange: begin")
	asks := l.asks(questions)
	ctx, cancel := context.WithTimeout(l.base, l.config.Timeout)
	defer cancel()
	sent := time.Now()
	grants := l.config.Bank.Lease(ctx, asks)
	l.faultAt("exchange: answered")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Exchanges++
	l.measure(time.Since(sent), grants)
	for i, question := range questions {
		if i >= len(grants) {
			l.fail(question.account, errors.New("the bank gave no answer"))
			continue
		}
		l.answer(question.account, sent, asks[i], grants[i])
	}
}

// measure updates roundTrip. Longer exchanges weigh more, so that leases seldom come too late. l.mu is
// held.
func (l *Leases) measure(took time.Duration, grants []Grant) {
	if !slices.ContainsFunc(grants, func(grant Grant) bool { return grant.Err == nil }) {
		return
	}
	roundTrip := time.Duration(l.roundTrip.Load())
	switch duration := took - roundTrip; {
	case roundTrip == 0:
		roundTrip = took
	case duration > 0:
		roundTrip += duration / 2
	default:
		roundTrip += duration / 8
	}
	l.roundTrip.Store(int64(roundTrip))
}

func (l *Leases) term() time.Duration { return l.plan.TermAt(time.Duration(l.roundTrip.Load())) }

func (l *Leases) asks(questions []question) []Ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	servers := l.config.Servers()
	asks := make([]Ask, 0, len(questions))
	for _, question := range questions {
		account := question.account
		need, smallest := int64(0), int64(0)
		for _, call := range account.calls {
			if call.gone {
				continue
			}
			if need += call.n; smallest == 0 || call.n < smallest {
				smallest = call.n
			}
		}
		left := l.left(account.name)
		if account.Next.Live(now) {
			left += account.Next.Units
		}
		extra := account.Size(l.plan, now, left, need, servers, time.Duration(l.roundTrip.Load()))
		if !l.config.always {
			extra = min(extra, account.Afford(l.inventory(account)))
		}
		most := max(need+extra, 1)
		asks = append(asks, Ask{Key: question.key, Need: max(smallest, 1), Most: min(most, max(l.plan.Limit(), 1))})
	}
	return asks
}

// answer handles the bank's answer on an account. l.mu is held.
func (l *Leases) answer(account *account, sent time.Time, ask Ask, leaseReply Grant) {
	if leaseReply.Err != nil {
		l.fail(account, leaseReply.Err)
		return
	}
	account.pending = false
	now := time.Now()
	l.book.touch(account, now)
	account.Learn(l.plan, leaseReply, now)
	if leaseReply.Block.Left > 0 {
		// The block may be lifted early: ask again after a term.
		account.ForgetRefusals()
		l.refuse(account, ask.Key, now, 1, min(leaseReply.Block.Left, l.term()))
		return
	}
	if leaseReply.Granted <= 0 {
		l.refuse(account, ask.Key, now, ask.Need, leaseReply.Decision.RetryAfter)
		return
	}
	l.stats.Leases++
	l.stats.Leased += uint64(leaseReply.Granted)
	hold := account.Granted(l.plan, leaseReply, sent, l.term())
	if leaseReply.Granted < ask.Most {
		account.Exhausted(now.Add(l.soon()))
	}
	hold.Units -= l.serve(account, ask.Key, hold, now)
	if hold.Units > 0 && !account.Queue(hold, l.left(account.name), now) {
		l.install(account, hold)
	}
}

// serve gives units of hold to the waiting calls in their order, and returns how many. The others are
// refused if the bank had no more, or asked for again. l.mu is held.
func (l *Leases) serve(account *account, key string, hold plan.Hold, now time.Time) (given int64) {
	if !now.Before(hold.End) {
		// The units came too late. Waiting calls may have time for another ask.
		l.stats.Lapsed += uint64(hold.Units)
		l.again(account, key)
		return hold.Units
	}
	until, exhausted := account.Refused(math.MaxInt64, now)
	account.reply(func(n int64) (answer, bool) {
		if n <= hold.Units-given {
			given += n
			return answer{Decision: policy.Decision{Allowed: true, Limit: l.plan.Limit(), ResetAfter: hold.End.Sub(now)}}, true
		}
		return answer{Decision: l.refusedFor(until.Sub(now))}, exhausted
	})
	l.again(account, key)
	return given
}

// again asks once more for the waiting calls of an account, or fails them. l.mu is held.
func (l *Leases) again(account *account, key string) {
	if len(account.calls) > 0 && !l.send(account, key) {
		l.fail(account, ErrBusy)
	}
}

// refuse remembers a refusal and answers waiting calls. The next call writes it into the key's
// word. l.mu is held.
func (l *Leases) refuse(account *account, key string, now time.Time, need int64, retry time.Duration) {
	wait := account.Refuse(need, retry, l.term(), l.soon(), now)
	l.stats.Refusals++
	// A waiting call that needs less came after the ask, so it goes on waiting.
	account.reply(func(n int64) (answer, bool) { return answer{Decision: l.refusedFor(wait)}, n >= need })
	l.again(account, key)
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
func (l *Leases) fail(account *account, err error) {
	account.pending = false
	switch {
	case l.closed:
		err = ErrClosed
	case !errors.Is(err, ErrBusy):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	account.reply(func(int64) (answer, bool) { return answer{err: err}, true })
}

// install writes a hold into the key's word. l.mu is held.
func (l *Leases) install(account *account, hold plan.Hold) {
	grant := word.Grant{Until: l.instant(hold.End), Units: hold.Units, Add: account.Adds(hold)}
	if hold.Units > 1 {
		grant.Mark = word.MarkFor(account.Low(hold.Units))
	}
	account.Use(l.inventory(account))
	lost, ok := l.write(account.name, grant)
	if !ok {
		// The engine has no room: each call of this key asks the bank.
		l.stats.Lapsed += uint64(hold.Units)
		account.Current = plan.Hold{}
		return
	}
	l.stats.Lapsed += uint64(lost)
	if grant.Add {
		hold.Units += account.Current.Units
	}
	account.Current = hold
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
		account := l.book.first()
		if account == nil || now.Sub(account.touched) < l.term()/2 {
			return backs, false
		}
		// Calls that the key's word answers do not touch the account.
		if account.Use(l.inventory(account)) > 0 || account.busy() || account.RefusedLately(now, l.term()) {
			l.book.touch(account, now)
			continue
		}
		backs = l.close(account, now, backs, l.earned)
	}
	return backs, true
}

// close takes an account out of the book, and adds its holds to backs if worthIt. l.mu is held.
func (l *Leases) close(account *account, now time.Time, backs []Back, worthIt func(*account) bool) []Back {
	hold := account.Current
	// A key without a word has no units: the write then reports 0.
	if hold.Units > 0 {
		// The units are of this lease, or of its window.
		hold.Units, _ = l.write(account.name, word.Seizure{Ended: hold.Window != 0})
	}
	for _, hold := range [...]plan.Hold{hold, account.Next} {
		if hold.Units == 0 {
			continue
		}
		back := Back{Name: account.name, Units: hold.Units, Word: hold.Word, At: hold.Instant, Age: now.Sub(hold.Sent)}
		if hold.Window == 0 && l.plan.Worth(back.Units, back.Age) == 0 || !worthIt(account) {
			l.stats.Lapsed += uint64(hold.Units)
			continue
		}
		l.stats.Returned += uint64(hold.Units)
		backs = append(backs, back)
	}
	account.Current, account.Next = plan.Hold{}, plan.Hold{}
	l.book.remove(account)
	return backs
}

func (l *Leases) giveBack(ctx context.Context, backs []Back) {
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	// Units that do not come back are lost, and were paid.
	_ = l.config.Bank.Return(ctx, backs)
}

func (l *Leases) faultAt(point string) {
	if l.config.fault != nil {
		l.config.fault(point)
	}
}
