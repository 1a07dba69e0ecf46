package httplimit

import (
	"net/http"

	"github.com/ral-limiter/ral/cell"
)

// together holds a request to several limits.
func (m *Middleware) together(r *http.Request, n int64) (v ruling, held []charge) {
	v.Cost = n
	v.quotas = make([]quota, len(m.gates))
	claims := make([]cell.Claim, 0, maxLimits)
	var at [maxLimits]int // which limit each claim is of
	for i, g := range m.gates {
		claim, one, of := g.together(r)
		if claim == nil {
			if g.whenNoKey() == Skip {
				continue
			}
			return keyless(Refuse, g.title(), n), nil
		}
		at[len(claims)] = i
		v.quotas[i] = of
		claims = append(claims, claim)
		if m.options.Charge != nil {
			held = append(held, one)
		}
	}
	if len(claims) == 0 {
		return keyless(Skip, "", n), nil
	}
	out := m.takeAll(r, &v, n, claims)
	if v.Reason == Cancelled {
		return v, nil
	}
	for i, d := range out.Decisions {
		v.quotas[at[i]].most = d.Limit
		if !out.Allowed && !d.Allowed {
			v.violated |= 1 << at[i]
		}
	}
	v.binding = at[out.Binding]
	v.Limit, v.Decision = m.gates[v.binding].title(), out.Decisions[out.Binding]
	if !out.Allowed {
		v.Reason, v.RetryAfter = OverLimit, out.RetryAfter
		return v, nil
	}
	return v, held
}

// takeAll takes from all claims, and tries again when it may as long as it may wait.
func (m *Middleware) takeAll(r *http.Request, v *ruling, n int64, claims []cell.Claim) cell.Outcome {
	for {
		out := cell.TakeAll(n, claims...)
		if out.Allowed || m.options.Shadow || out.RetryAfter > m.options.WaitUpTo-v.Waited ||
			!sleep(r.Context(), v, out.RetryAfter) {
			return out
		}
	}
}
