package fleet

import (
	"context"
	"errors"
	"math"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Claim is a key of a limiter, for TakeAll. A limiter's Claim method makes it.
type Claim struct {
	limiter *Limiter
	limit   policy.Policy
	key     string
	more    int64 // times that it stands, beyond the first
}

// Claim names a key of this limiter for TakeAll.
func (l *Limiter) Claim(key string) Claim { return Claim{limiter: l, key: key} }

// ClaimWith is Claim under a limit that comes with the call, as by TakeWith.
func (l *Limiter) ClaimWith(limit policy.Policy, key string) Claim {
	return Claim{limiter: l, limit: limit, key: key}
}

// Times returns the claim as if it stood n times, for a key of which more units are taken than
// of others: TakeAll(ctx, 1, request, tokens.Times(5000)). n below 1 is 1.
func (c Claim) Times(n int64) Claim {
	c.more = max(n, 1) - 1
	return c
}

// units returns how many units the claim asks for.
func (c *Claim) units(n int64) int64 { return (&store.Ask{Times: 1 + c.more}).Units(n) }

// TakeAll takes n units from every claim or from none, by one call of Redis. So a
// request can be limited by its address, by its user and by a limit on all callers
// together. No other call comes in between.
//
// The limiters must be in Exact mode (or the error is ErrModeUnsupported), have the same Client,
// or one by Config.Via, and the same Config.Epoch (or it is ErrDifferentClients), and in a
// cluster the same Config.Tag (or it is ErrCrossSlot). A limit that ClaimWith brought must be of
// its limiter's family (ErrMisfit).
// The first one's Budget holds. If that one cannot ask Redis, each answers as its Outage says: a
// claim on a limiter of FallbackClosed refuses all, one of FallbackOpen none.
//
// A claim that stands twice is charged twice: the two are met together, by the sum of their
// units, and have the same answer. Claims on one key under different limits are asked one after
// the other; if one of them refuses, RetryAfter may be too short. So it may if claims stand
// twice while Redis is away. Without claims the call is allowed. n == 0
// looks without taking; n < 0, and n above a limit, are refused with policy.Never. A policy
// that would make the call wait refuses it here. A call that is allowed is counted once
// for each key, one that is refused once for each key that refuses. The zero Claim
// panics. The Outcome holds nothing: its Settle and Cancel do nothing. Use limits.AskAll for
// units that may be given back.
func TakeAll(ctx context.Context, n int64, claims ...Claim) (limits.Outcome, error) {
	out := limits.Outcome{Allowed: true, Binding: -1, Answers: make([]limits.Answer, len(claims))}
	if len(claims) == 0 {
		return out, nil
	}
	terms, err := together(claims)
	if err != nil {
		return limits.Outcome{Binding: -1}, err
	}
	asks, at := join(claims, terms)
	all, err := takeAll(ctx, n, claims, terms, asks, at)
	if err != nil {
		return limits.Outcome{Binding: -1}, err
	}
	for i := range all {
		out.Answers[i] = all[i].answer
		out.Allowed = out.Allowed && all[i].answer.Allowed
	}
	bind(&out, terms)
	return out, nil
}

// takeAll takes from every claim or from none, and counts the call. Claim i is a part of
// asks[at[i]].
func takeAll(ctx context.Context, n int64, claims []Claim, terms []*terms, asks []store.Ask, at []int) ([]taken, error) {
	out := make([]taken, len(claims))
	first := claims[0].limiter
	all, err := ask(ctx, first, first.guardOf(terms[0], claims[0].key), func(ctx context.Context, r *remote) ([]store.Taken, error) {
		for _, c := range claims {
			if c.limiter.remote.Load() == nil {
				return nil, errConnecting
			}
		}
		return r.store.TakeAll(ctx, n, asks)
	})
	if err != nil {
		err = takeAllWithout(n, claims, terms, out, err)
	}
	if err != nil {
		return nil, err
	}
	allowed := true
	for i := range claims {
		out[i].of = terms[i]
		if len(all) > 0 { // Redis decided
			t := all[at[i]]
			out[i].exact = t
			out[i].answer = limits.Answer{Decision: t.Decision, Provenance: byRedis}
			if t.Block.Refused {
				out[i].answer.Err = ErrBlocked
			}
			terms[i].remember(claims[i].key, t)
			claims[i].limiter.learnBlock(claims[i].key, &t)
		}
		allowed = allowed && out[i].answer.Allowed
	}
	counted := make(map[Claim]bool, len(claims))
	for i, c := range claims {
		key := Claim{limiter: c.limiter, key: c.key}
		if a := &out[i].answer; a.Allowed == allowed && !counted[key] {
			counted[key] = true
			c.limiter.tally.count(n, a)
		}
	}
	return out, nil
}

// join brings the claims together that are on one key of one limiter under one limit, and
// returns for each claim the index of what it has become a part of.
func join(claims []Claim, terms []*terms) (asks []store.Ask, at []int) {
	at = make([]int, len(claims))
	for i, c := range claims {
		first := 0
		for first < i && (claims[first].limiter != c.limiter || claims[first].key != c.key || terms[first] != terms[i]) {
			first++
		}
		if first == i {
			at[i] = len(asks)
			asks = append(asks, store.Ask{Limit: terms[i].limit, Key: c.key, Times: 1 + c.more})
			continue
		}
		at[i] = at[first]
		asks[at[i]].Times += min(1+c.more, math.MaxInt64-asks[at[i]].Times)
	}
	return asks, at
}

// together returns the terms of each claim, or an error if one call of Redis cannot decide
// on all of them.
func together(claims []Claim) ([]*terms, error) {
	first := claims[0].limiter
	all := make([]*terms, len(claims))
	for i, c := range claims {
		switch {
		case c.limiter.closed.Load():
			return nil, ErrClosed
		case c.limiter.config.Mode != Exact:
			return nil, unsupported("TakeAll")
		case c.limiter.origin() != first.origin() && (first.config.Client == nil || c.limiter.config.Client != first.config.Client):
			return nil, ErrDifferentClients
		case !c.limiter.config.Epoch.Equal(first.config.Epoch):
			return nil, ErrDifferentClients // one script reads one clock
		}
		err := store.CheckKey(c.key)
		if err == nil {
			all[i], err = c.limiter.under(c.limit, c.key)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// takeAllWithout answers by the limiters' fallbacks, all or nothing, if the error of the
// exchange with Redis allows that. Shares that were closed meanwhile refuse, which is no
// answer; the error is ErrClosed then, and what the others let pass is given back.
func takeAllWithout(n int64, claims []Claim, terms []*terms, out []taken, failure error) error {
	var why noAnswer
	if !errors.As(failure, &why) {
		return failure
	}
	allowed := true
	var local []share.Claim
	var at []int // where they stand
	for i, c := range claims {
		n := c.units(n)
		if a, blocked := c.limiter.blockedWithout(terms[i], c.key, n, why.cause); blocked {
			out[i].answer, allowed = a, false
			continue
		}
		if of := terms[i]; of.local != nil {
			local, at = append(local, share.Claim{Local: of.local, Key: c.key, Times: 1 + c.more}), append(at, i)
			continue
		}
		out[i].answer = c.limiter.without(terms[i], n, why.cause)
		allowed = allowed && out[i].answer.Allowed
	}
	if !allowed {
		n = min(n, 0) // nothing is charged for it
	}
	all, allowed := share.TakeAll(n, local...)
	for i, r := range all {
		c := claims[at[i]]
		out[at[i]].answer, out[at[i]].local = c.limiter.shared(terms[at[i]], r.Decision, c.units(n), why.cause), r
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
func bind(o *limits.Outcome, terms []*terms) {
	c := binding.New(o.Allowed)
	for i := range o.Answers {
		c.See(i, &o.Answers[i].Decision, shape.AtOnce(terms[i].policy))
	}
	o.Binding, o.RetryAfter = c.Index, c.RetryAfter
}
