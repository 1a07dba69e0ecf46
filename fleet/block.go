package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

// Block refuses the key for d on all servers, whatever its limit says; 0 lifts the block. d is
// rounded up to a microsecond. In Exact mode every call that begins after Block has returned is
// refused until d has passed since Redis was asked, by Redis's clock. Answer.Err is then
// limits.ErrBlocked, and RetryAfter the end of the block, or the limit's own if later. Peek and
// Take for no units are not Allowed, and Remaining is 0.
//
// A server that decides without Redis goes by Redis's last word about the key:
//
//   - In Leased mode, another server's block holds once this server asks about the key: after its
//     leases, at most Config.Term after Block.
//   - While Redis is away, under any Config.Outage, a key that Redis said is blocked stays blocked
//     until the end that Redis said.
//
// Calls of Wait and Acquire wait for the end of a block, or notice within a second that it is
// lifted. If patience or deadline do not allow that, or for no units, they get engine.ErrDeadline
// at once, which then wraps limits.ErrBlocked. A call that Redis promised a turn before Block keeps
// the turn, unless this server hears of the block first. The call then gives the turn back, and
// asks again after the block. A turn that Reserve promised stands, and so do units taken.
//
// The limit goes on: units drain, and Refund, SetPolicy and charging work as ever. Of several
// blocks of a key, the last to end holds. Blocks are in Redis beside the key's word, and outlive
// restarts of servers and changes of Policy under the Name. A Redis that loses, flushes or evicts
// its keys forgets blocks. Lifting a block also forgets refusals for Config.Penalty. Reset does
// both, and forgets the used units. After either, in Leased mode, a server that was told of the
// block refuses the key for up to Config.Term more.
//
// The error is a *policy.FieldError unless d is 0 to 4 years (35040h), or as from Take. If Redis
// could not be asked, the error wraps ErrOutage, and the block may be made or not. This server then
// refuses the key until Redis says more of it or, if d is 0, no longer refuses it. Blocks end 9
// years after Config.Epoch.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	bad := &policy.FieldError{Of: "fleet.Block", Field: "d", Value: d, Want: fmt.Sprintf("0 to %v", penalty.Longest)}
	if d < 0 || d > penalty.Longest {
		return bad
	}
	if d == 0 {
		return l.unblock(ctx, key)
	}
	standing, err := l.askBlock(ctx, key, d)
	err, passed := forCaller(err)
	switch {
	case passed:
		l.known.Block(key, d)
		return err
	case err != nil:
		return err
	case standing.TooLate:
		bad.Want = "a time before the end of blocks, 9 years after Config.Epoch"
		return bad
	}
	l.tally.blocks.Add(1)
	return nil
}

// Blocked asks Redis how much longer the key is blocked, by Block or Config.Penalty, or 0. If Redis
// could not be asked, the error is ErrOutage, and the time is as this server was last told.
func (l *Limiter) Blocked(ctx context.Context, key string) (time.Duration, error) {
	standing, err := l.askBlock(ctx, key, 0)
	err, passed := forCaller(err)
	if passed {
		return l.known.Left(key, policy.Never), err
	}
	return standing.Left, err
}

// askBlock has Redis block the key for d, or only tell of its block if d is 0. The list learns the
// answer.
func (l *Limiter) askBlock(ctx context.Context, key string, d time.Duration) (store.Standing, error) {
	standing, err := about(ctx, &l.access, l.own.Load(), key, func(ctx context.Context, decider decider) (store.Standing, error) {
		return decider.Block(ctx, key, d)
	})
	if err == nil {
		l.known.Heard(key, standing.Left, standing.At)
	}
	return standing, err
}

func (l *Limiter) unblock(ctx context.Context, key string) error {
	_, err := about(ctx, &l.access, l.own.Load(), key, func(ctx context.Context, decider decider) (bool, error) { return decider.Delete(ctx, nil, key) })
	err, passed := forCaller(err)
	if err == nil || passed {
		l.known.Forget(key)
	}
	return err
}

// learnBlock records Redis's answer about the key's block, and counts a block that the call made.
func (l *Limiter) learnBlock(key string, t *store.Taken) {
	l.known.Heard(key, t.Block.Left, t.At)
	if t.Block.Made {
		l.tally.penalties.Add(1)
	}
}

// blockPoll is how often a call that waits for a block checks whether it was lifted.
const blockPoll = 500 * time.Millisecond

// sleepBlocked is sleep for a call that waits for the end of a block. sleepBlocked also returns nil
// once the block is lifted, at most 1.5 times blockPoll and the time to ask later. Redis is not
// asked again within half of blockPoll, so many calls waiting for a key cost about four a second.
func (l *Limiter) sleepBlocked(ctx context.Context, key string, duration time.Duration) error {
	for begun := time.Now(); ; {
		if err := l.sleep(ctx, min(duration-time.Since(begun), blockPoll)); err != nil {
			return err
		}
		if time.Since(begun) >= duration {
			return nil
		}
		if l.known.Left(key, blockPoll/2) > 0 {
			continue
		}
		// On an error this server's knowledge holds.
		if left, _ := l.Blocked(ctx, key); left == 0 {
			return nil
		}
	}
}
