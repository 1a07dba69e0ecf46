package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/engine"
	deciding "github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/escape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// claims are the limits and costs of a request's claims.
type claims struct {
	// n is 0 if nothing is to be taken.
	n int
	// limits has the index of each claim's limit.
	limits [MaxLimits]int
	// costs has the cost by limit.
	costs [MaxLimits]int64
	// inUse reports whether any limit has units in use.
	inUse bool
}

// addClaims calls add for each limit with its cost. If nothing is to be taken, v has the reason.
func (d *Controller[R, S]) addClaims(
	r R, v *Result, quotas []Quota, c *claims, add func(l Any[R, S], n int64) (limit policy.Policy, ok bool),
) {
	for i, l := range d.limiters {
		p := d.parts[i]
		if p == nil || p.Shadow && d.shadows {
			continue
		}
		cost, ok := p.costs(r, v)
		if !ok {
			c.n = 0
			return
		}
		limit, ok := add(l, cost)
		switch {
		case ok:
			c.limits[c.n], c.costs[i], quotas[i] = i, cost, p.quotaOf(limit)
			c.inUse = c.inUse || quotas[i].InUse || p.occupies
			c.n++
		case p.WhenNoKey != limits.Skip:
			v.keyless(limits.Refuse, p.Name)
			c.n = 0
			return
		}
	}
	if c.n == 0 && d.live {
		v.keyless(limits.Skip, "")
	}
}

// takeAll holds a request to several limits, and describes them in quotas.
func (d *Controller[R, S]) takeAll(ctx context.Context, r R, v *Result, quotas []Quota) (s Settlement) {
	patience := d.patience(ctx, nil)
	if d.shadow {
		patience = 0
	}
	if d.engines {
		return d.takeEngines(ctx, patience, r, v, quotas)
	}
	all := make([]limits.Claim, 0, len(d.limiters))
	var c claims
	d.addClaims(r, v, quotas, &c, func(l Any[R, S], n int64) (limit policy.Policy, ok bool) {
		claim, limit, ok := l.claimOfAny(r, n, !d.charges)
		if ok {
			all = append(all, claim)
		}
		return limit, ok
	})
	if c.n == 0 {
		return nil
	}
	out, err := limits.AskAll(ctx, patience, all...)
	v.Waited = out.Waited
	if c.inUse && !out.Allowed && err == nil {
		last := deciding.New(false)
		for i := range out.Answers {
			d.tellInUse(r, &c, quotas, i, &out.Answers[i].Decision, out.Answers[i].Provenance, &last)
		}
		out.Binding, out.RetryAfter = last.Index, last.RetryAfter
	}
	binding := out.Binding
	// guess is the provenance of a refusal that is not exact.
	var guess *limits.Provenance
	for i := range out.Answers {
		a := &out.Answers[i]
		if out.Allowed || a.Allowed || a.Source() == limits.SourceNone {
			continue
		}
		v.Violated |= 1 << c.limits[i]
		if quotas[c.limits[i]].ofAnotherFamily(&a.Decision) {
			// The program's error is reported first.
			binding = i
		}
		if !a.Exact() {
			guess = a.Provenance
		}
	}
	if d.hides {
		binding = d.visible(binding, out.Allowed, quotas, &c, func(i int) *policy.Decision { return &out.Answers[i].Decision })
	}
	if binding >= 0 {
		a := &out.Answers[binding]
		v.Binding = c.limits[binding]
		v.Limit, v.Decision, v.Cost = d.parts[v.Binding].Name, a.Decision, c.costs[v.Binding]
		if v.Provenance = guess; guess == nil {
			v.Provenance = a.Provenance
		}
	}
	switch {
	case err != nil:
		v.failed(ctx, err)
	case !out.Allowed && binding < 0:
		v.failed(ctx, errors.New("ral: a limiter refused without a reason"))
	case !out.Allowed:
		v.Reason, v.RetryAfter = quotas[v.Binding].reasonOf(&out.Answers[binding]), out.RetryAfter
	case d.charges || c.inUse:
		s = &taken{out, c}
	}
	for i := range out.Answers {
		// reasonOf needs the earlier quota.
		quotas[c.limits[i]].follow(&out.Answers[i])
	}
	v.bound(&quotas[v.Binding])
	return s
}

// tellInUse is Limit.tellInUse for a claim that one of several limits refuses. It adds the claim to last.
func (d *Controller[R, S]) tellInUse(r R, c *claims, quotas []Quota, claim int, decision *policy.Decision, basis *limits.Provenance, last *deciding.Claim) {
	index := c.limits[claim]
	if !decision.Allowed && basis.Err() == nil && (quotas[index].InUse || d.parts[index].occupies) {
		decision.RetryAfter = d.limiters[index].comesBackAfter(r, c.costs[index], decision.RetryAfter, d.config.RetryGuess)
	}
	last.See(claim, decision, 0)
}

// takeEngines is takeAll for limits of engines. It and conclude repeat takeAll's steps for speed. With conclude's
// steps shared, a request under two limits took 440 ns, not 409, and AskAll allocates.
func (d *Controller[R, S]) takeEngines(ctx context.Context, patience time.Duration, r R, v *Result, quotas []Quota) (s Settlement) {
	// Clearing room for more would cost each request.
	var room [3]engine.Claim
	all := room[:]
	if len(d.limiters) > len(room) {
		all = make([]engine.Claim, len(d.limiters))
	}
	var charges []func(used int64)
	if d.charges {
		charges = make([]func(used int64), len(d.limiters))
	}
	var c claims
	d.addClaims(r, v, quotas, &c, func(l Any[R, S], n int64) (limit policy.Policy, ok bool) {
		var charge *func(used int64)
		if charges != nil {
			charge = &charges[c.n]
		}
		limit = l.claim(r, n, escape.Hide(&all[c.n]), charge)
		return limit, limit != nil
	})
	if c.n == 0 {
		return nil
	}
	all = all[:c.n]
	if patience <= 0 && charges == nil && !c.inUse {
		// out stays on the stack.
		out := engine.TakeAll(all...)
		d.conclude(r, v, quotas, &c, &out, false)
		return nil
	}
	var out engine.Outcome
	var err error
	if patience > 0 {
		out, err = engine.AcquireAll(ctx, patience, all...)
	}
	if patience <= 0 || errors.Is(err, engine.ErrClosed) {
		waited := out.Waited
		// After ErrClosed the call is answered by Config.WhenUnavailable.
		out = engine.TakeAll(all...)
		out.Waited = waited
	}
	d.conclude(r, v, quotas, &c, &out, errors.Is(err, engine.ErrCancelled))
	switch {
	case !out.Allowed:
	case charges != nil:
		s = &enginesTaken{out, c, charges[:c.n]}
	case c.inUse:
		s = &enginesTaken{out: out}
	}
	return s
}

// enginesTaken holds the units of a request under several limits of engines.
type enginesTaken struct {
	out    engine.Outcome
	claims claims
	// charges has a function for each claim, or is nil if nothing is charged afterwards.
	charges []func(used int64)
}

func (t *enginesTaken) lost() []<-chan struct{} { return nil }

func (t *enginesTaken) holds() uint8 { return bitsOf(t.claims.limits[:len(t.charges)]) }

func (t *enginesTaken) cost(index int) int64 { return t.claims.costs[index] }

func bitsOf(limits []int) (bits uint8) {
	for _, i := range limits {
		bits |= 1 << i
	}
	return bits
}

func (t *enginesTaken) settle(_ context.Context, used [MaxLimits]int64) bool {
	var kept [MaxLimits]int64
	for i, charge := range t.charges {
		if kept[i] = used[t.claims.limits[i]]; kept[i] == asTaken {
			kept[i] = math.MaxInt64
			continue
		}
		charge(kept[i])
	}
	t.out.Keep(kept[:len(t.charges)]...)
	return true
}

// conclude completes the result of limits of engines that have decided together.
func (d *Controller[R, S]) conclude(r R, v *Result, quotas []Quota, c *claims, out *engine.Outcome, cancelled bool) {
	v.Waited = out.Waited
	if c.inUse && !out.Allowed && !cancelled {
		last := deciding.New(false)
		for i := range out.Decisions {
			d.tellInUse(r, c, quotas, i, &out.Decisions[i], out.Provenance(i), &last)
		}
		out.Binding, out.RetryAfter = last.Index, last.RetryAfter
	}
	binding := out.Binding
	// guess is the provenance of a refusal that is not exact.
	var guess *limits.Provenance
	if !out.Allowed {
		for i, decision := range out.Decisions {
			if decision.Allowed {
				continue
			}
			v.Violated |= 1 << c.limits[i]
			if quotas[c.limits[i]].ofAnotherFamily(&decision) {
				// The program's error is reported first.
				binding = i
			}
			if basis := out.Provenance(i); !basis.Exact() {
				guess = basis
			}
		}
	}
	if d.hides {
		binding = d.visible(binding, out.Allowed, quotas, c, func(i int) *policy.Decision { return &out.Decisions[i] })
	}
	if v.Provenance = guess; guess == nil {
		v.Provenance = out.Provenance(binding)
	}
	if binding >= 0 {
		v.Binding = c.limits[binding]
		v.Limit, v.Decision, v.Cost = d.parts[v.Binding].Name, out.Decisions[binding], c.costs[v.Binding]
	}
	switch {
	case cancelled:
		v.Reason = limits.Cancelled
	case !out.Allowed:
		v.Reason, v.RetryAfter = quotas[v.Binding].reasonOf(&limits.Answer{Decision: v.Decision}), out.RetryAfter
	}
	for i := range out.Decisions {
		// reasonOf needs the earlier quota.
		quotas[c.limits[i]].followDecision(&out.Decisions[i])
	}
	v.bound(&quotas[v.Binding])
}

// visible returns the claim that decided among those that clients may know, or binding if there is none or
// if it refuses for ever.
func (d *Controller[R, S]) visible(binding int, allowed bool, quotas []Quota, c *claims, decision func(claim int) *policy.Decision) int {
	if binding < 0 || !d.parts[c.limits[binding]].Hidden || decision(binding).RetryAfter == policy.Never {
		return binding
	}
	shown := deciding.New(allowed)
	for i, limit := range c.limits[:c.n] {
		if !d.parts[limit].Hidden {
			shown.See(i, decision(i), quotas[limit].Most)
		}
	}
	if shown.Index < 0 {
		return binding
	}
	return shown.Index
}

// taken holds the units of a request under several limits of any limiters.
type taken struct {
	out    limits.Outcome
	claims claims
}

func (t *taken) cost(index int) int64 { return t.claims.costs[index] }

func (t *taken) lost() []<-chan struct{} { return t.out.Lost() }

func (t *taken) holds() uint8 { return bitsOf(t.claims.limits[:t.claims.n]) }

func (t *taken) settle(ctx context.Context, used [MaxLimits]int64) bool {
	all := make([]int64, t.claims.n)
	for i := range all {
		limit := t.claims.limits[i]
		if all[i] = used[limit]; all[i] == asTaken {
			all[i] = t.claims.costs[limit]
		}
	}
	return t.out.Settle(ctx, all...) == nil
}

// askShadows asks the limits with Shadow about a request that the others admit. Their units are
// settled with s, if the request is charged afterwards or the units are in use.
func (d *Controller[R, S]) askShadows(ctx context.Context, r R, v *Result, s Settlement) Settlement {
	for i, l := range d.limiters {
		p := d.parts[i]
		if p == nil || !p.Shadow {
			continue
		}
		grant, n, inUse, refused := d.askShadow(ctx, r, l, i, v.common)
		if refused {
			v.Shadowed = append(v.Shadowed, p.Name)
			d.counters.shadowed[i].Add(1)
		}
		if (d.charges || inUse) && grant.State.Settler != nil {
			s = &grantTaken[R, S]{grant, i, n, d, s}
		}
	}
	return s
}

// askShadow reports whether a limit with Shadow refuses. Panics, errors and a bad cost only count.
func (d *Controller[R, S]) askShadow(ctx context.Context, r R, l Any[R, S], index int, common int64) (g limits.Grant, n int64, inUse, refused bool) {
	defer d.endShadow(ctx, index)
	of := Result{common: common}
	n, ok := l.Of().costs(r, &of)
	if !ok {
		d.shadowFailed(ctx, index, fmt.Sprintf("Limit.Cost returned %d", n))
		return g, 0, false, false
	}
	g, inUse, ok, err := l.hold(ctx, r, n)
	switch {
	case err != nil:
		d.shadowFailed(ctx, index, err)
		return limits.Grant{}, 0, false, false
	case !ok:
		return g, 0, false, l.Of().WhenNoKey != limits.Skip
	}
	return g, n, inUse, !g.Allowed
}

// shadowCharge returns a request's used units of a limit with Shadow, or asTaken if Charge panics.
func (d *Controller[R, S]) shadowCharge(ctx context.Context, r R, index int, served S) int64 {
	used := int64(asTaken)
	func() {
		defer d.endShadow(ctx, index)
		used = max(0, d.parts[index].Charge(r, served))
	}()
	return used
}
