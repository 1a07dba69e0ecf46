package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
)

// serveAll serves a request under several limits.
func (m *Middleware) serveAll(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var v result
	var s settlement
	var room [maxLimits]quota
	quotas := room[:len(m.limiters)]
	switch {
	case !m.begin(r, &v):
	case m.engines:
		s = m.takeAll(r, &v, quotas)
	default:
		s = m.askAll(r, &v, quotas)
	}
	if m.shadows && v.Reason == Admitted {
		s = m.askShadows(r, &v, s)
	}
	m.carryOut(w, r, next, &v, quotas, s)
}

// takeAll holds a request to several limits that engines keep, and describes them in quotas.
func (m *Middleware) takeAll(r *http.Request, v *result, quotas []quota) (s settlement) {
	var room [maxLimits]engine.Claim
	var at [maxLimits]int // the limit of each claim
	var keys []chargeable
	var costs [maxLimits]int64
	keep := m.charges
	if keep {
		keys = make([]chargeable, 0, len(m.limiters))
	}
	claims := room[:0]
	for i, l := range m.limiters {
		p := m.parts[i]
		if p.shadow && m.shadows {
			continue
		}
		n, ok := p.costs(r, v)
		if !ok {
			return nil
		}
		claim, key, of, ok := l.claim(r, n, keep)
		if !ok {
			if p.noKey == Skip {
				continue
			}
			v.keyless(Refuse, p.name)
			return nil
		}
		at[len(claims)], costs[i] = i, n
		quotas[i] = of
		claims = append(claims, claim)
		if keep {
			keys = append(keys, key)
		}
	}
	if len(claims) == 0 {
		v.keyless(Skip, "")
		return nil
	}
	var out engine.Outcome
	cancelled := false
	if m.options.WaitUpTo <= 0 || m.shadow {
		out = engine.TakeAll(claims...)
	} else {
		out, cancelled = m.acquireAll(r, claims)
	}
	v.Waited = out.Waited
	binding := out.Binding
	var guess *limits.Basis // of a refusal that makes RetryAfter one
	if !out.Allowed {
		for i, d := range out.Decisions {
			if d.Allowed {
				continue
			}
			v.violated |= 1 << at[i]
			if quotas[at[i]].ofAnotherFamily(&d) {
				binding = i // the error to mend first
			}
			if basis := out.Basis(i); !basis.Promised() {
				guess = basis
			}
		}
	}
	if v.Basis = guess; guess == nil {
		v.Basis = out.Basis(binding)
	}
	if binding >= 0 {
		v.binding = at[binding]
		v.Limit, v.Decision, v.Cost = m.parts[v.binding].name, out.Decisions[binding], costs[v.binding]
	}
	switch {
	case cancelled:
		v.Reason = Cancelled
	case !out.Allowed:
		v.Reason, v.RetryAfter = quotas[v.binding].reasonOf(&limits.Answer{Decision: v.Decision}), out.RetryAfter
	case keep:
		s = &allTaken{out, at, keys}
	}
	for i := range out.Decisions {
		quotas[at[i]].followDecision(&out.Decisions[i])
	}
	return s
}

// acquireAll takes from all claims, and waits in line for a key that has no room.
func (m *Middleware) acquireAll(r *http.Request, claims []engine.Claim) (out engine.Outcome, cancelled bool) {
	out, err := engine.AcquireAll(r.Context(), m.options.WaitUpTo, claims...)
	switch {
	case errors.Is(err, engine.ErrCancelled):
		return out, true
	case errors.Is(err, engine.ErrClosed):
		waited := out.Waited
		out = engine.TakeAll(claims...) // answered by Config.WhenUnavailable
		out.Waited = waited
	}
	return out, false
}

// allTaken implements settlement for several limits.
type allTaken struct {
	out  engine.Outcome
	at   [maxLimits]int // the limit of each claim
	keys []chargeable
}

func (t *allTaken) settle(_ context.Context, used [maxLimits]int64) bool {
	var kept [maxLimits]int64
	for i, key := range t.keys {
		if kept[i] = used[t.at[i]]; kept[i] == asTaken {
			kept[i] = math.MaxInt64
			continue
		}
		key.charge(kept[i])
	}
	t.out.Keep(kept[:len(t.keys)]...)
	return true
}

// askAll is takeAll for any limiters.
func (m *Middleware) askAll(r *http.Request, v *result, quotas []quota) (s settlement) {
	claims := make([]limits.Claim, 0, len(m.limiters))
	var at [maxLimits]int // the limit of each claim
	var costs [maxLimits]int64
	for i, l := range m.limiters {
		p := m.parts[i]
		if p.shadow && m.shadows {
			continue
		}
		n, ok := p.costs(r, v)
		if !ok {
			return nil
		}
		claim, of, ok := l.claimOfAny(r, n)
		if !ok {
			if p.noKey == Skip {
				continue
			}
			v.keyless(Refuse, p.name)
			return nil
		}
		at[len(claims)], costs[i], quotas[i] = i, n, of
		claims = append(claims, claim)
	}
	if len(claims) == 0 {
		v.keyless(Skip, "")
		return nil
	}
	patience := m.options.WaitUpTo
	if m.shadow {
		patience = 0
	}
	out, err := limits.AskAll(r.Context(), patience, claims...)
	v.Waited = out.Waited
	binding := out.Binding
	var guess *limits.Basis // of a refusal that makes RetryAfter one
	for i := range out.Answers {
		a := &out.Answers[i]
		quotas[at[i]].follow(a)
		if out.Allowed || a.Allowed || a.Source() == limits.SourceNone {
			continue
		}
		v.violated |= 1 << at[i]
		if quotas[at[i]].ofAnotherFamily(&a.Decision) {
			binding = i // the error to mend first
		}
		if !a.Promised() {
			guess = a.Basis
		}
	}
	if binding >= 0 {
		a := &out.Answers[binding]
		v.binding = at[binding]
		v.Limit, v.Decision, v.Cost = m.parts[v.binding].name, a.Decision, costs[v.binding]
		if v.Basis = guess; guess == nil {
			v.Basis = a.Basis
		}
	}
	switch {
	case err != nil:
		v.failed(r, err)
	case !out.Allowed && binding < 0:
		v.failed(r, errors.New("ral: httplimit: a limiter refused without a reason"))
	case !out.Allowed:
		v.Reason, v.RetryAfter = quotas[v.binding].reasonOf(&out.Answers[binding]), out.RetryAfter
	case m.charges:
		s = &anyTaken{out, at, costs}
	}
	return s
}

// anyTaken implements settlement for several limits of any limiters.
type anyTaken struct {
	out   limits.Outcome
	at    [maxLimits]int // the limit of each claim
	costs [maxLimits]int64
}

func (t *anyTaken) settle(ctx context.Context, used [maxLimits]int64) bool {
	all := make([]int64, len(t.out.Answers))
	for i := range all {
		if all[i] = used[t.at[i]]; all[i] == asTaken {
			all[i] = t.costs[t.at[i]]
		}
	}
	return t.out.Settle(ctx, all...) == nil
}

// askShadows asks the limits with Shadow about a request that the others admit. What they
// take is settled with s, if the request is charged afterwards.
func (m *Middleware) askShadows(r *http.Request, v *result, s settlement) settlement {
	later := &shadowsTaken{live: s}
	for i, l := range m.limiters {
		p := m.parts[i]
		if !p.shadow {
			continue
		}
		var refused bool
		if later.grants[i], refused = m.askShadow(r, l, i, v.common); refused {
			v.Shadowed = append(v.Shadowed, p.name)
			m.counters.shadowed[i].Add(1)
		}
	}
	if !m.charges {
		return s
	}
	later.m = m
	return later
}

// askShadow asks one limit with Shadow, and reports whether it refuses. A panic, an error and
// a cost below 0 are counted, and have no other effect.
func (m *Middleware) askShadow(r *http.Request, l limiter, at int, common int64) (g limits.Grant, refused bool) {
	defer m.endShadow(r.Context(), at)
	of := result{common: common}
	n, ok := l.of().costs(r, &of)
	if !ok {
		m.shadowFailed(r.Context(), at, fmt.Sprintf("Limit.Cost returned %d", n))
		return g, false
	}
	g, ok, err := l.hold(r, n)
	switch {
	case err != nil:
		m.shadowFailed(r.Context(), at, err)
		return limits.Grant{}, false
	case !ok:
		return g, l.of().noKey != Skip
	}
	return g, !g.Allowed
}

// endShadow is deferred by what runs for a limit with Shadow: its panic ends there.
func (m *Middleware) endShadow(ctx context.Context, at int) {
	if cause := recover(); cause != nil {
		m.shadowFailed(ctx, at, cause)
	}
}

// shadowFailed counts a failure of a limit with Shadow. The first one is logged.
func (m *Middleware) shadowFailed(ctx context.Context, at int, cause any) {
	m.counters.shadowFailed[at].Add(1)
	if m.log.to != nil && !m.log.shadowFailed[at].Swap(true) {
		m.log.to.LogAttrs(ctx, slog.LevelError, "rate limit: a limit with Shadow failed, and is not decided",
			slog.String("limit", m.parts[at].name), slog.String("cause", cut(fmt.Sprint(cause))))
	}
}

// shadowCharge returns what a request has used of a limit with Shadow, or asTaken if its
// Charge panics.
func (m *Middleware) shadowCharge(r *http.Request, at int, served Served) int64 {
	used := int64(asTaken)
	func() {
		defer m.endShadow(r.Context(), at)
		used = max(0, m.parts[at].charge(r, served))
	}()
	return used
}

// shadowsTaken implements settlement for limits of which some have Shadow.
type shadowsTaken struct {
	m      *Middleware
	live   settlement
	grants [maxLimits]limits.Grant
}

func (t *shadowsTaken) settle(ctx context.Context, used [maxLimits]int64) (sure bool) {
	sure = t.live.settle(ctx, used)
	for i := range t.grants {
		if t.grants[i].Held.Of != nil && used[i] != asTaken {
			t.settleShadow(ctx, i, used[i])
		}
	}
	return sure
}

func (t *shadowsTaken) settleShadow(ctx context.Context, at int, used int64) {
	defer t.m.endShadow(ctx, at)
	if err := t.grants[at].Settle(ctx, used); err != nil {
		t.m.shadowFailed(ctx, at, err)
	}
}
