package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/blocklist"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Limiter limits how often each key may act, over all servers with the same Name. New makes a
// Limiter; the zero value is of no use. Any number of goroutines may call its methods. A Limiter
// must be closed.
//
// Use Choke for yes or no, Take for several units or the time to wait, and Peek to look. Wait and
// Reserve are for calls that may come later, TakeAll for several keys at once. Admit, Hold and
// LimitFor make a Limiter usable for package limits and the adapters on it.
//
// A key is any string of up to 64 KiB. Redis knows the empty key, keys longer than 128 bytes and
// keys with a closing brace by their SHA-256. The Answer tells of an outage of Redis, which is no
// error. Errors are the caller's: a too long key, a context that ended, a closed limiter.
type Limiter struct {
	// catalog has the configuration, and the limits by which calls are decided.
	catalog
	// access is the way to Redis.
	access
	// chain has the links that decide calls.
	chain []link
	// leased is the first link, or nil except in Leased mode.
	leased *leased
	// slots are this server's, or nil except under a limit in flight.
	slots   *slotKeeper
	known   *blocklist.List
	waiters waiters
	tally   tally
	// warned is nil without Config.WarnAt, except for Shares.
	warned *warnings

	// state is nil without Config.StateFile.
	state *stateFile
	// servers is the number of servers counted last.
	servers atomic.Int64
	// conflict says how the limits of this Name's servers differ, if an error.
	conflict atomic.Pointer[error]
	// ctx is the keeper's.
	ctx  context.Context
	stop context.CancelFunc
	// kept is closed when the keeper has ended.
	kept    chan struct{}
	closing sync.Once
}

// Limit returns the limiter's own limit: Config.Policy, or its replacement by SetPolicy.
func (l *Limiter) Limit() policy.Policy { return l.own.Load().policy }

// LimitFor returns the key's limit now: Config.PolicyFor's choice, or otherwise Limit. In Leased
// mode a Funnel has a smaller burst. LimitFor does not ask Redis.
func (l *Limiter) LimitFor(key string) policy.Policy {
	if l.config.PolicyFor != nil {
		if limit := l.config.PolicyFor(key); limit != nil && !shape.IsNil(limit) {
			return limit
		}
	}
	if l.leased != nil {
		return l.leased.plan.Policy
	}
	return l.Limit()
}

// Health returns nil while Redis is asked and all servers keep the same limit. Otherwise it returns
// ErrOutage with the cause, and the remedy if Redis told it. If a node of a cluster is away, the
// error names the node, and Redis still answers for other nodes. ErrLimits names the limits, and
// Redis still answers. Other errors are ErrStateFile, if units to be charged cannot be saved, and
// engine.ErrClosed.
func (l *Limiter) Health() error {
	if err := l.away(); err != nil {
		return err
	}
	if _, why := l.openNodes(); why != nil {
		return why
	}
	if why := l.conflict.Load(); why != nil {
		return *why
	}
	return l.unsaved()
}

// unsaved returns why units to be charged could not be saved, or nil.
func (l *Limiter) unsaved() error {
	if l.state != nil {
		if why := l.state.failed.Load(); why != nil {
			return *why
		}
	}
	return nil
}

// away returns why Redis is not asked, or nil.
func (l *Limiter) away() error {
	if l.closed.Load() {
		return engine.ErrClosed
	}
	if _, err := l.reach(); err != nil {
		return l.uncounted(err)
	}
	if open, why := l.guard.Open(); open {
		return l.uncounted(asOutage(why))
	}
	if l.leased != nil {
		return l.leased.leases.Health()
	}
	if l.slots != nil && !l.slots.ready() {
		return asOutage(errCutOff)
	}
	return nil
}

func (l *Limiter) sleep(ctx context.Context, duration time.Duration) error {
	if duration <= 0 {
		return nil
	}
	return l.sleepUntil(ctx, nil, duration, nil)
}

// sleepUntil waits until the channel is ready, or returns late after that time.
func (l *Limiter) sleepUntil(ctx context.Context, ready <-chan struct{}, duration time.Duration, late error) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ready:
		return nil
	case <-timer.C:
		return late
	case <-ctx.Done():
		return cell.Cancelled(ctx)
	case <-l.ctx.Done():
		return engine.ErrClosed
	}
}
