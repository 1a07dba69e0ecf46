package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

// Block refuses the key for d on all servers, whatever its limit says. d is rounded up to a
// microsecond. In Exact mode every call of every verb that begins after Block has returned is
// refused until d has passed since Redis was asked, by Redis's clock. Answer.Err is
// limits.ErrBlocked then, and RetryAfter is the end of the block, or the limit's own RetryAfter if
// that is later. Peek and Take for no units are not Allowed, and Remaining is 0.
//
// A server that decides without Redis goes by what Redis last said to it about the key:
//
//   - In Leased mode, a block that was made by another server holds there as soon as it
//     asks about the key. It asks when its leases have ended: when Config.Term has passed
//     since Block at the latest.
//   - While Redis is away, under any Config.Outage, this server refuses a key that Redis
//     said is blocked, until the end that Redis said.
//
// Calls of Wait and Acquire wait for the end of a block if their patience and their deadline
// allow it, or until it is lifted, which they notice within a second. Otherwise they get
// engine.ErrDeadline at once, and the error wraps limits.ErrBlocked as well. For no units they do not wait.
// A call that Redis promised a turn before Block keeps it. If this server hears of the block
// before the turn comes, the call gives it back, and asks again when the block has ended. A
// turn that Reserve promised stands, and so do units that were taken.
//
// The limit goes on by itself: what was used drains, and Refund, SetPolicy and charging work
// as ever. Of several blocks of a key, the one that ends last holds. Blocks
// are in Redis, under a name beside that of the key's word, so that they hold over restarts of
// the servers, and for whatever Policy comes next under the same Name. A Redis that loses its
// data, or whose keys are flushed or evicted, has forgotten the blocks, too.
//
// With a d of 0 Block lifts the key's block on all servers, and forgets its refusals that count
// for Config.Penalty. Reset does so, too, and also forgets what the key has used. In Leased mode
// a server that was told of the block refuses the key for up to Config.Term more.
//
// The error is a *policy.FieldError unless d is 0 to 4 years (35040h), or those of Take. If
// Redis could not be asked it wraps ErrOutage. Then the block may be made or not, and this
// server refuses the key until Redis says more of it, or no more if d is 0. Blocks end 9 years after Config.Epoch.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	bad := &policy.FieldError{Of: "fleet.Block", Field: "d", Value: d, Want: fmt.Sprintf("0 to %v", penalty.Longest)}
	if d < 0 || d > penalty.Longest {
		return bad
	}
	if d == 0 {
		return l.unblock(ctx, key)
	}
	type blocked struct {
		store.Standing
		ok bool
	}
	b, err := ask(ctx, l, l.guardOf(l.own.Load(), key), func(ctx context.Context, r *remote) (b blocked, err error) {
		b.Standing, b.ok, err = r.store.Block(ctx, key, d)
		return b, err
	})
	if err != nil {
		why, err := mayFallBack(key, err)
		if err != nil {
			return err
		}
		l.known.Block(key, d)
		return why.cause
	}
	if !b.ok {
		bad.Want = "a time before the end of blocks, 9 years after Config.Epoch"
		return bad
	}
	l.known.Heard(key, b.Left, b.At)
	l.tally.blocks.Add(1)
	return nil
}

// Blocked returns for how much longer the key is blocked, by Block or by Config.Penalty, and 0
// if it is not. It asks Redis. If that could not be asked, the error is ErrOutage, and the time
// is what this server was told before.
func (l *Limiter) Blocked(ctx context.Context, key string) (time.Duration, error) {
	b, err := ask(ctx, l, l.guardOf(l.own.Load(), key), func(ctx context.Context, r *remote) (store.Standing, error) {
		b, _, err := r.store.Block(ctx, key, 0)
		return b, err
	})
	if err != nil {
		why, err := mayFallBack(key, err)
		if err != nil {
			return 0, err
		}
		return l.blockedFor(key, policy.Never), why.cause
	}
	l.known.Heard(key, b.Left, b.At)
	return b.Left, nil
}

// unblock lifts the block of the key.
func (l *Limiter) unblock(ctx context.Context, key string) error {
	_, err := ask(ctx, l, l.guardOf(l.own.Load(), key), func(ctx context.Context, r *remote) (bool, error) {
		return r.store.Delete(ctx, nil, key)
	})
	var why noAnswer
	if err != nil && !errors.As(err, &why) {
		return err
	}
	l.known.Forget(key)
	return why.cause
}

// learnBlock records what Redis said of the key's block when it decided a call, and counts a
// block that the call made.
func (l *Limiter) learnBlock(key string, t *store.Taken) {
	l.known.Heard(key, t.Block.Left, t.At)
	if t.Block.Made {
		l.tally.penalties.Add(1)
	}
}

// blockPoll is how often a call that waits for the end of a block looks whether it was lifted.
const blockPoll = 500 * time.Millisecond

// sleepBlocked is sleep for a call that waits for the end of a block. It also returns nil when
// the block is lifted: 1.5 times blockPoll after Redis was told at the latest, and the time to
// ask. A call that looks within half of blockPoll after Redis was heard does not ask it again,
// so that many calls that wait for one key cost about as much as four a second.
func (l *Limiter) sleepBlocked(ctx context.Context, key string, d time.Duration) error {
	for begun := time.Now(); ; {
		if err := l.sleep(ctx, min(d-time.Since(begun), blockPoll)); err != nil {
			return err
		}
		if time.Since(begun) >= d {
			return nil
		}
		if l.blockedFor(key, blockPoll/2) > 0 {
			continue
		}
		// An error means that Redis does not say. What this server was told holds then.
		if left, _ := l.Blocked(ctx, key); left == 0 {
			return nil
		}
	}
}
