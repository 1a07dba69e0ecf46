package httplimit

import (
	"context"
	"errors"
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
	m.carryOut(w, r, next, &v, quotas, s)
}

// takeAll holds a request to several limits that engines keep, and describes them in quotas.
func (m *Middleware) takeAll(r *http.Request, v *result, quotas []quota) (s settlement) {
	var room [maxLimits]engine.Claim
	var at [maxLimits]int // the limit of each claim
	var keys []chargeable
	keep := m.options.Charge != nil
	if keep {
		keys = make([]chargeable, 0, len(m.limiters))
	}
	claims := room[:0]
	for i, l := range m.limiters {
		claim, key, of, ok := l.claim(r, v.Cost, keep)
		if !ok {
			if l.whenNoKey() == Skip {
				continue
			}
			v.keyless(Refuse, l.title())
			return nil
		}
		at[len(claims)] = i
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
	if m.options.WaitUpTo <= 0 || m.options.Shadow {
		out = engine.TakeAll(claims...)
	} else {
		out, cancelled = m.acquireAll(r, claims)
	}
	v.Waited, v.Basis = out.Waited, inProcess
	binding := out.Binding
	if !out.Allowed {
		for i, d := range out.Decisions {
			if d.Allowed {
				continue
			}
			v.violated |= 1 << at[i]
			if quotas[at[i]].ofAnotherFamily(&d) {
				binding = i // the error to mend first
			}
		}
	}
	if binding >= 0 {
		v.binding = at[binding]
		v.Limit, v.Decision = m.limiters[v.binding].title(), out.Decisions[binding]
	}
	switch {
	case cancelled:
		v.Reason = Cancelled
	case !out.Allowed:
		v.Reason, v.RetryAfter = quotas[v.binding].reasonOf(&limits.Answer{Decision: v.Decision}), out.RetryAfter
	case keep:
		s = &allTaken{out, keys}
	}
	for i := range out.Decisions {
		quotas[at[i]].followDecision(&out.Decisions[i])
	}
	return s
}

// inProcess is how engines reach their answers, as far as engine.TakeAll says.
var inProcess = limits.NewBasis(limits.SourceProcess, true, nil)

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
	keys []chargeable
}

func (t *allTaken) settle(_ context.Context, cost, actual int64) bool {
	if actual <= cost {
		var used [maxLimits]int64
		for i := range used {
			used[i] = actual
		}
		t.out.Keep(used[:len(t.out.Decisions)]...)
		return true
	}
	for _, key := range t.keys {
		key.charge(actual - cost)
	}
	return true
}

// askAll is takeAll for any limiters.
func (m *Middleware) askAll(r *http.Request, v *result, quotas []quota) (s settlement) {
	claims := make([]limits.Claim, 0, len(m.limiters))
	var at [maxLimits]int // the limit of each claim
	for i, l := range m.limiters {
		claim, of, ok := l.claimOfAny(r, v.Cost)
		if !ok {
			if l.whenNoKey() == Skip {
				continue
			}
			v.keyless(Refuse, l.title())
			return nil
		}
		at[len(claims)], quotas[i] = i, of
		claims = append(claims, claim)
	}
	if len(claims) == 0 {
		v.keyless(Skip, "")
		return nil
	}
	patience := m.options.WaitUpTo
	if m.options.Shadow {
		patience = 0
	}
	out, err := limits.AskAll(r.Context(), patience, claims...)
	v.Waited = out.Waited
	binding := out.Binding
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
	}
	if binding >= 0 {
		a := &out.Answers[binding]
		v.binding = at[binding]
		v.Limit, v.Decision = m.limiters[v.binding].title(), a.Decision
		v.Basis = a.Basis
	}
	switch {
	case err != nil:
		v.failed(r, err)
	case !out.Allowed:
		v.Reason, v.RetryAfter = quotas[v.binding].reasonOf(&out.Answers[binding]), out.RetryAfter
	case m.options.Charge != nil:
		s = &anyTaken{out}
	}
	return s
}

// anyTaken implements settlement for several limits of any limiters.
type anyTaken struct{ limits.Outcome }

func (t *anyTaken) settle(ctx context.Context, _, actual int64) bool {
	used := make([]int64, len(t.Answers))
	for i := range used {
		used[i] = actual
	}
	return t.Settle(ctx, used...) == nil
}
