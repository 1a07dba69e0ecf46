package httplimit

import (
	"errors"
	"net/http"
	"slices"

	"github.com/ral-limiter/ral/engine"
)

// together holds a request to several limits.
func (m *Middleware) together(r *http.Request, n int64) (v ruling, held charge) {
	v.Cost = n
	v.quotas = make([]quota, len(m.gates))
	var room [maxLimits]engine.Claim
	var at [maxLimits]int // which limit each claim is of
	var owing []debtor
	keep := m.options.Charge != nil
	if keep {
		owing = make([]debtor, 0, len(m.gates))
	}
	claims := room[:0]
	for i, g := range m.gates {
		claim, key, of, ok := g.together(r, n, keep)
		if !ok {
			if g.whenNoKey() == Skip {
				continue
			}
			return keyless(Refuse, g.title(), n), nil
		}
		at[len(claims)] = i
		v.quotas[i] = of
		claims = append(claims, claim)
		if keep {
			owing = append(owing, key)
		}
	}
	if len(claims) == 0 {
		return keyless(Skip, "", n), nil
	}
	out, cancelled := m.takeAll(r, claims)
	v.Waited = out.Waited
	if out.Binding >= 0 {
		v.binding = at[out.Binding]
		v.Limit, v.Decision = m.gates[v.binding].title(), out.Decisions[out.Binding]
	}
	if cancelled {
		v.Reason = Cancelled
		return v, nil
	}
	for i, d := range out.Decisions {
		v.quotas[at[i]].most = d.Limit
		if !out.Allowed && !d.Allowed {
			v.violated |= 1 << at[i]
		}
	}
	switch {
	case !out.Allowed:
		v.Reason, v.RetryAfter = OverLimit, out.RetryAfter
	case keep:
		held = &takenAll{out, owing}
	}
	return v, held
}

// takeAll takes from all claims, and waits in line for those that have no room.
func (m *Middleware) takeAll(r *http.Request, claims []engine.Claim) (out engine.Outcome, cancelled bool) {
	if m.options.WaitUpTo <= 0 || m.options.Shadow {
		return engine.TakeAll(claims...), false
	}
	out, err := engine.AcquireAll(r.Context(), m.options.WaitUpTo, claims...)
	switch {
	case errors.Is(err, engine.ErrCancelled):
		return out, true
	case errors.Is(err, engine.ErrClosed):
		waited := out.Waited
		out = engine.TakeAll(claims...) // as Config.WhenUnavailable says
		out.Waited = waited
	}
	return out, false
}

// takenAll implements charge for several limits.
type takenAll struct {
	out   engine.Outcome
	owing []debtor
}

func (t *takenAll) settle(all, actual int64) {
	if actual <= all {
		t.out.Keep(slices.Repeat([]int64{actual}, len(t.out.Decisions))...)
		return
	}
	for _, key := range t.owing {
		key.owe(actual - all)
	}
}
