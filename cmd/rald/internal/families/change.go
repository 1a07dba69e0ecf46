package families

import (
	"context"
	"errors"
	"fmt"

	"github.com/ral-limiter/ral/internal/core/shape"
)

// maxMoved bounds the units that Change moves, in multiples of the limit.
const maxMoved = 1000

// Change makes the used units of the key of from count for the key of to. If both claims have the
// same key and family, it translates the word. Otherwise it gives the units back and charges them,
// in two steps: a call between them may be admitted. Turns promised to the first key are not the
// second's.
func Change(ctx context.Context, from, to Claim) error {
	switch {
	case isLease(from.Family), isLease(to.Family):
		return errors.New("a leased limit cannot change")
	case from.Key == to.Key && from.Family == to.Family:
		return from.Family.ChangeLimit(ctx, from.Key, from.Limit, to.Limit)
	}
	used, err := giveBack(ctx, from)
	if used == 0 {
		return err
	}
	charged, failed := charge(ctx, to, used)
	if failed != nil {
		_, back := to.Family.RefundWith(ctx, to.Limit, to.Key, charged)
		_, again := charge(ctx, from, used)
		failed = errors.Join(failed, back, again)
	}
	return errors.Join(err, failed)
}

// charge charges units in parts that a single charge may have, and returns how many were recorded.
func charge(ctx context.Context, claim Claim, used int64) (charged int64, err error) {
	for part := max(claim.Limit.Limit(), used/maxMoved+1); charged < used; {
		n := min(part, used-charged)
		decision, err := claim.Family.RefundWith(ctx, claim.Limit, claim.Key, -n)
		if err == nil && !decision.Allowed {
			if blocked, _ := claim.Family.Blocked(ctx, claim.Key); blocked == 0 {
				err = fmt.Errorf("%d used units could not be recorded under %v", n, claim.Limit)
			}
		}
		if err != nil {
			return charged, err
		}
		charged += n
	}
	return charged, nil
}

// giveBack gives all units of a key back, and returns how many.
func giveBack(ctx context.Context, claim Claim) (used int64, err error) {
	if _, ok := claim.Limit.(shape.OnCredit); ok {
		return 0, fmt.Errorf("%v grants units on credit: the key can change only to another such limit, by text", claim.Limit)
	}
	capacity := claim.Limit.Limit()
	decision, err := claim.Family.TakeWith(ctx, claim.Limit, claim.Key, 0)
	if err == nil && !decision.Allowed {
		return 0, errors.New("the key is blocked: its limit can change afterwards")
	}
	for range maxMoved {
		// If none remain, the key may owe more than its capacity, and the next round gives that back.
		n := capacity - decision.Remaining
		if n <= 0 || decision.ResetAfter == 0 || err != nil {
			return used, err
		}
		if decision, err = claim.Family.RefundWith(ctx, claim.Limit, claim.Key, n); err == nil {
			used += n
		}
	}
	return used, fmt.Errorf("the key owes more than %d times its limit: the rest stays", maxMoved)
}
