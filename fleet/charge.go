package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

const (
	// chargeSlice is how long charging what was let pass may keep the keeper from its
	// other duties.
	chargeSlice = beat / 2
	// chargeBudget is how long charging some keys may take. Only the keeper waits for it.
	chargeBudget = chargeSlice / 2
	// chargeBatch is how many keys are charged by one script, and chargesInFlight how many
	// scripts are sent before the first is answered. A call that comes meanwhile waits for
	// that many at most. To charge 100,000 keys took 1.4 s with one in flight and 1.0 s
	// with two, on 2 busy cores, of which Redis worked for 0.8 s. Batches of 16 took 1.2 s.
	chargeBatch     = 64
	chargesInFlight = 2
)

// settle charges what was let pass without Redis, as long as that answers.
func (k *keeper) settle() {
	if k.local == nil || k.outage {
		return
	}
	k.credit()
	if charged := k.chargeAll(k.local); charged > 0 {
		k.tally.charged.Add(uint64(charged))
		k.config.OnEvent(Event{Kind: ChargedLocal, Units: charged})
	}
}

// credit counts as charged what Redis admitted too late for the caller, and for any other.
// The share answered instead, and what that let pass need not be charged as well. The share
// remembers what Redis said.
func (k *keeper) credit() {
	k.takes.Unused(func(ask store.TakeAsk, t store.Taken) {
		k.rememberLate(ask.Key, t)
		if t.Allowed {
			k.tally.charged.Add(uint64(k.local.Credit(ask.Key, ask.N)))
		}
	})
}

// chargeAll charges all keys that owe, and returns the units charged. While Redis runs one
// script the next is prepared and sent.
func (k *keeper) chargeAll(local *share.Local) (charged int64) {
	type batch struct {
		debts []share.Debt
		fates []fate
	}
	done := make(chan batch, chargesInFlight)
	inFlight, goOn := 0, true
	receive := func() {
		b := <-done
		inFlight--
		for i, f := range b.fates {
			if f.charged {
				local.Paid(b.debts[i])
				charged += b.debts[i].Units
			} else {
				local.Unpaid()
			}
			goOn = goOn && !f.stop // otherwise, something is wrong with this key only
		}
	}
	send := func(debts []share.Debt) {
		if inFlight == chargesInFlight {
			receive()
		}
		inFlight++
		go func() { done <- batch{debts, k.charge(debts)} }()
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
			k.nudge()
			goOn = false
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
	return charged
}

// fate is what became of a debt.
type fate struct {
	charged bool // in Redis, or perhaps: nothing is charged twice
	stop    bool // others need not be tried
}

// charge charges keys in Redis, in one round trip. What was sent and not answered is
// charged, too, as it may be.
func (k *keeper) charge(debts []share.Debt) []fate {
	fates, asks := make([]fate, len(debts)), make([]store.Debt, len(debts))
	for i, d := range debts {
		asks[i] = store.Debt{Tail: d.Name, Units: d.Units}
	}
	if len(debts) == 0 {
		return fates
	}
	errs, err := askOnce(k.ctx, k.Limiter, max(k.config.Budget, chargeBudget), func(ctx context.Context, r *remote) ([]error, error) {
		errs := r.store.ChargeEach(ctx, r.limit, asks)
		return errs, allFailed(errs)
	})
	for i := range fates {
		switch why := (noAnswer{}); {
		case err != nil:
			fates[i] = fate{charged: errors.As(err, &why) && why.mayBeDone, stop: true}
		case errs[i] == nil:
			fates[i] = fate{charged: true}
		default:
			cause := k.noteUnfit(errs[i])
			fates[i] = fate{charged: !notExecuted(cause), stop: errors.Is(cause, ErrOutage)}
		}
	}
	return fates
}

// allFailed returns the first error if all are failures of Redis: in a cluster some of it
// may be away.
func allFailed(errs []error) error {
	for _, err := range errs {
		if !countsAsFailure(err) {
			return nil
		}
	}
	return errs[0]
}
