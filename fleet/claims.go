package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/binding"
	"github.com/ral-limiter/ral/internal/shape"
)

// Claim is a key of a limiter, for TakeAll. A limiter's Claim method makes it.
type Claim struct {
	limiter *Limiter
	key     string
}

// Claim names a key of this limiter for TakeAll.
func (l *Limiter) Claim(key string) Claim { return Claim{l, key} }

// Outcome is the answer of TakeAll.
type Outcome struct {
	// Allowed reports whether all claims were met. Otherwise nothing was taken.
	Allowed bool
	// RetryAfter is 0 if Allowed. Otherwise all claims would be met after this long if
	// no other call takes. It is policy.Never if a claim never will be.
	RetryAfter time.Duration
	// Binding is the index of the claim that decided: of those refused the one that has
	// to wait longest, of those allowed the one with the least share of its limit left.
	// -1 if there are no claims.
	Binding int
	// Answers has one for each claim, in their order. Those not Allowed refused.
	Answers []Answer
}

// TakeAll takes n units from every claim or from none, by one call of Redis. So a
// request can be limited by its address, by its user and by a limit on all callers
// together. No other call comes in between.
//
// The limiters must be in Exact mode (or the error is ErrModeUnsupported), have the same Client and
// Config.Epoch (or it is ErrDifferentClients), and in a cluster the same Config.Tag (or it is
// ErrCrossSlot). The first one's Budget holds. If that one cannot ask Redis, each answers
// as its Outage says: a claim on a limiter of FallbackClosed refuses all, one of
// FallbackOpen none.
//
// A claim that stands twice is charged twice. Without claims the call is allowed. n == 0
// looks without taking; n < 0, and n above a limit, are refused with policy.Never. A policy
// that would make the call wait refuses it here. A call that is allowed is counted once
// for each key, one that is refused once for each key that refuses. The zero Claim
// panics.
func TakeAll(ctx context.Context, n int64, claims ...Claim) (Outcome, error) {
	out := Outcome{Allowed: true, Binding: -1, Answers: make([]Answer, len(claims))}
	if len(claims) == 0 {
		return out, nil
	}
	if err := together(claims); err != nil {
		return Outcome{Binding: -1}, err
	}
	all, err := ask(ctx, claims[0].limiter, func(ctx context.Context, r *remote) ([]store.Taken, error) {
		asks := make([]store.Ask, len(claims))
		for i, c := range claims {
			own := c.limiter.remote.Load()
			if own == nil {
				return nil, errConnecting
			}
			asks[i] = store.Ask{Limit: own.limit, Key: c.key}
		}
		return r.store.TakeAll(ctx, n, asks)
	})
	if err != nil {
		err = takeAllWithout(n, claims, out.Answers, err)
	}
	if err != nil {
		return Outcome{Binding: -1}, err
	}
	for i, t := range all {
		out.Answers[i] = Answer{Decision: t.Decision, Source: SourceRedis}
		claims[i].limiter.remember(claims[i].key, t)
	}
	for _, a := range out.Answers {
		out.Allowed = out.Allowed && a.Allowed
	}
	counted := make(map[Claim]bool, len(claims))
	for i, c := range claims {
		if a := &out.Answers[i]; a.Allowed == out.Allowed && !counted[c] {
			counted[c] = true
			c.limiter.tally.count(n, a)
		}
	}
	out.bind(claims)
	return out, nil
}

// together returns an error if one call of Redis cannot decide on all claims.
func together(claims []Claim) error {
	first := claims[0].limiter
	for _, c := range claims {
		switch {
		case c.limiter.closed.Load():
			return ErrClosed
		case c.limiter.config.Mode != Exact:
			return ErrModeUnsupported
		case c.limiter != first && (first.config.Client == nil || c.limiter.config.Client != first.config.Client):
			return ErrDifferentClients
		case !c.limiter.config.Epoch.Equal(first.config.Epoch):
			return ErrDifferentClients // one script reads one clock
		}
		if err := store.CheckKey(c.key); err != nil {
			return err
		}
	}
	return nil
}

// takeAllWithout answers by the limiters' fallbacks, all or nothing, if the error of the
// exchange with Redis allows that. Shares that were closed meanwhile refuse, which is no
// answer; the error is ErrClosed then, and what the others let pass is given back.
func takeAllWithout(n int64, claims []Claim, answers []Answer, failure error) error {
	var why noAnswer
	if !errors.As(failure, &why) {
		return failure
	}
	allowed := true
	var local []share.Claim
	var at []int // where they stand
	for i, c := range claims {
		l := c.limiter
		if l.local != nil {
			local, at = append(local, share.Claim{Local: l.local, Key: c.key}), append(at, i)
			continue
		}
		answers[i] = l.without(n, why.cause)
		allowed = allowed && answers[i].Allowed
	}
	if !allowed {
		n = min(n, 0) // nothing is charged for it
	}
	all, allowed := share.TakeAll(n, local...)
	for i, r := range all {
		l := claims[at[i]].limiter
		answers[at[i]] = l.shared(r.Decision, n, why.cause)
	}
	for _, c := range claims {
		if c.limiter.closed.Load() {
			for i := range all {
				if allowed {
					all[i].Cancel()
				}
			}
			return ErrClosed
		}
	}
	return nil
}

// bind finds the claim that decided.
func (o *Outcome) bind(claims []Claim) {
	c := binding.New(o.Allowed)
	for i := range o.Answers {
		c.See(i, &o.Answers[i].Decision, shape.AtOnce(claims[i].limiter.config.Policy))
	}
	o.Binding, o.RetryAfter = c.Index, c.RetryAfter
}
