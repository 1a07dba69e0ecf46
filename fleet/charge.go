package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

const (
	// chargeSlice bounds charging between the keeper's other duties, and separately each rest.
	chargeSlice = beat / 2
	// chargeBudget bounds a script that charges. Only the keeper waits for such a script.
	chargeBudget = chargeSlice / 2
	// chargeBatch is the number of keys that a script charges. Calls wait for the script, some 4 µs
	// a key.
	chargeBatch = 64
	// chargesInFlight bounds scripts under way without calls; with 1 charging takes 1.4 times as
	// long.
	chargesInFlight = 2
	// Charging takes at most 1/chargePart of Redis's time while calls come.
	chargePart = 10
	// lively is how long after the last answered call others are expected.
	lively = 100 * time.Millisecond
)

// settle charges the units let pass without Redis, while Redis answers.
func (k *keeper) settle() {
	if k.away() != nil {
		return
	}
	if k.credit(); k.local == nil {
		return
	}
	var charged int64
	for _, terms := range k.shares() {
		k.charger.charge = func(debts []share.Debt) []fate { return k.charge(terms, debts) }
		n, more := k.charger.chargeAll(terms.local)
		if charged += n; more {
			k.nudge()
		}
	}
	if charged > 0 {
		k.tally.charged.Add(uint64(charged))
		k.config.OnEvent(Event{Kind: ChargedLocal, Units: charged})
	}
}

// credit marks takes as charged whose answers from Redis arrived after the share had decided. The share
// also learns from Redis's answers, and the list blocks.
func (l *Limiter) credit() {
	l.batch.Unused(func(ask store.TakeAsk, taken store.Taken) {
		known, there := l.byLimit.Load(ask.Limit)
		if !there {
			return
		}
		terms := known.(*terms)
		terms.remember(ask.Key, taken, true)
		l.learnBlock(ask.Key, &taken)
		if taken.Allowed && terms.local != nil {
			l.tally.charged.Add(uint64(terms.local.Credit(ask.Key, ask.N)))
		}
	})
}

func (k *keeper) answered() uint64 {
	stats := k.Stats()
	return stats.Admitted + stats.Refused
}

// charger charges a share's debts, a script at a time. Only the keeper uses a charger. While no
// calls come, the next script is sent before the last is answered. While calls come, a rest follows
// each script, so that the scripts of all servers take 1/chargePart of Redis's time. A script's
// round trip counts as its time, which is more than Redis needs.
type charger struct {
	// charge charges the debts by one script.
	charge func([]share.Debt) []fate
	// calls returns how many calls were answered so far.
	calls func() uint64
	// servers returns the number of servers that perhaps charge, one or more.
	servers func() int
	// sleep reports whether charging may go on.
	sleep func(time.Duration) bool

	// answered is the number of calls at the last count.
	answered uint64
	// came is the time at which that number had grown.
	came time.Time
	// rested is when the rest after the last script ends.
	rested time.Time
}

func (c *charger) live() bool {
	now := time.Now()
	if n := c.calls(); n != c.answered {
		c.answered, c.came = n, now
	}
	return now.Sub(c.came) < lively
}

// chargeAll charges keys for chargeSlice. It returns the units, and whether to go on at once.
func (c *charger) chargeAll(local *share.Local) (charged int64, more bool) {
	type batch struct {
		debts []share.Debt
		fates []fate
		took  time.Duration
	}
	done := make(chan batch, chargesInFlight)
	inFlight, goOn := 0, true
	receive := func() {
		batch := <-done
		inFlight--
		c.rested = time.Now().Add(min(time.Duration(chargePart*c.servers()-1)*batch.took, chargeSlice))
		for i, fate := range batch.fates {
			if fate.charged {
				local.Paid(batch.debts[i])
				charged += batch.debts[i].Units
			} else {
				local.Unpaid()
			}
			// Otherwise something is wrong with this key only.
			goOn = goOn && !fate.stop
		}
	}
	send := func(debts []share.Debt) {
		limit := chargesInFlight
		if c.live() {
			limit = 1
		}
		for inFlight >= limit {
			receive()
		}
		if rest := time.Until(c.rested); limit == 1 && rest > 0 {
			goOn = c.sleep(rest) && goOn
		}
		if !goOn {
			return
		}
		inFlight++
		begun := time.Now()
		go func() {
			fates := c.charge(debts)
			done <- batch{debts, fates, time.Since(begun)}
		}()
	}
	begun := time.Now()
	debts := make([]share.Debt, 0, chargeBatch)
	for debt := range local.Owed() {
		if debts = append(debts, debt); len(debts) < chargeBatch {
			continue
		}
		send(debts)
		debts = make([]share.Debt, 0, chargeBatch)
		if time.Since(begun) > chargeSlice {
			more, goOn = goOn, false
		}
		if !goOn {
			break
		}
	}
	if goOn && len(debts) > 0 {
		send(debts)
	}
	for inFlight > 0 {
		receive()
	}
	if !goOn {
		local.Unpaid()
	}
	return charged, more
}

type fate struct {
	// charged means that Redis charged the units, or perhaps did: nothing is charged twice.
	charged bool
	// stop means that other debts need not be tried.
	stop bool
}

// charge charges keys in one round trip. An unanswered charge counts as charged, since Redis may
// have charged it.
func (k *keeper) charge(terms *terms, debts []share.Debt) []fate {
	// Otherwise debts may be on another node.
	alone := k.nodes.Load() == nil
	return byGuard(&k.access, terms, debts, func(debt share.Debt) string { return store.TailOf(debt.Name) }, func(breaker *guard.Guard, debts []share.Debt) []fate {
		return k.chargeNode(terms, breaker, debts, alone)
	})
}

// chargeNode is charge for the keys of a node. alone reports whether there are no others.
func (k *keeper) chargeNode(terms *terms, breaker *guard.Guard, debts []share.Debt, alone bool) []fate {
	fates, asks := make([]fate, len(debts)), make([]store.Debt, len(debts))
	for i, debt := range debts {
		asks[i] = store.Debt{Tail: store.TailOf(debt.Name), Units: debt.Units}
	}
	errs, err := askOnce(k.ctx, &k.access, breaker, max(k.config.Budget, chargeBudget), func(ctx context.Context, decider decider) ([]error, error) {
		errs := decider.ChargeEach(ctx, terms.limit, asks)
		return errs, allFailed(errs)
	})
	for i := range fates {
		k.tally.excess.Add(uint64(asks[i].Excess))
		switch why, _ := err.(noAnswer); { //nolint:errorlint // nothing wraps it
		case err != nil:
			fates[i] = fate{charged: why.mayBeDone, stop: alone}
		case errs[i] == nil:
			fates[i] = fate{charged: true}
		default:
			cause := k.noteUnfit(errs[i])
			fates[i] = fate{charged: !notExecuted(cause), stop: alone && errors.Is(cause, ErrOutage)}
		}
	}
	return fates
}

// allFailed returns the first error if all are failures: nodes of a cluster may be away.
func allFailed(errs []error) error {
	for _, err := range errs {
		if !countsAsFailure(err) {
			return nil
		}
	}
	return errs[0]
}
