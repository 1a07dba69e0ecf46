package engine

import (
	"errors"

	"github.com/ral-limiter/ral/limits"
)

// Peek returns the decision of Take(tenant, n) now. It takes nothing, gives no tenant an entry and is
// not counted.
func (s *Shares[K]) Peek(tenant K, n int64) (shareDecision ShareDecision) {
	if s.closed.Load() {
		return s.closedDecision()
	}
	now := s.now()
	own, _ := s.own.peek(tenant, now)
	if shareDecision.Decision = s.unguaranteed(n); own.limit != nil {
		shareDecision.Decision = own.look(n)
	}
	if shareDecision.Allowed {
		return shareDecision
	}
	loan := s.lendWord(now).look(n)
	ceiling, limited := s.ceilings.peek(tenant, now)
	if limited {
		most := s.barred()
		if ceiling.limit != nil {
			most = ceiling.look(n)
		}
		loan.Allowed, loan.RetryAfter = loan.Allowed && most.Allowed, max(loan.RetryAfter, most.RetryAfter)
	}
	if loan.Allowed && s.turns.active.Load() > 0 {
		loan.Allowed, loan.RetryAfter = false, 1
	}
	shareDecision.answer(loan, n)
	return shareDecision
}

// Explain returns why a unit of the tenant is admitted or refused now. Each explains the tenant's guarantee, if it has
// one, then the group as far as it lends, and then the tenant's ceiling, if it has one. A unit is admitted
// if the guarantee admits it, or if all the others do. Otherwise Binding is what refuses the loan for longest.
//
// Unlike a ShareDecision, which clients may see, an Explanation has figures of the group: Remaining of a tenant without a
// guarantee is the room for loans. Explain takes nothing, gives no tenant an entry and is not counted. After Close it says that the
// shares are closed.
func (s *Shares[K]) Explain(tenant K) limits.Explanation { return s.explain(tenant, 1) }

var (
	sharesClosed  = limits.NewProvenance(limits.SourceUnrecorded, false, errors.New("the shares are closed"))
	ceilingBarred = limits.NewProvenance(limits.SourceUnrecorded, false, errors.New(
		"the ceiling is of another kind than the limit of the group, Config.MaxKeys others have one, or the tenant cannot be found again"))
)

func (s *Shares[K]) explain(tenant K, n int64) limits.Explanation {
	now := s.now()
	explain := func(name string, w accountWord) limits.Explanation {
		explanation := limits.ExplainWord(w.limit, w.word, w.now, n, 0)
		explanation.Name, explanation.Provenance, explanation.Known = s.config.Config.Name+name, inProcess, true
		if s.closed.Load() {
			explanation.Provenance, explanation.Allowed, explanation.Remaining, explanation.RetryAfter = sharesClosed, false, 0, s.config.Config.OpenTimeout
		}
		return explanation
	}
	var each []limits.Explanation
	own, _ := s.own.peek(tenant, now)
	if own.limit != nil {
		each = append(each, explain("/guarantee", own))
	}
	each = append(each, explain("/group", s.lendWord(now)))
	if ceiling, limited := s.ceilings.peek(tenant, now); ceiling.limit != nil {
		each = append(each, explain("/ceiling", ceiling))
	} else if limited {
		each = append(each, limits.Explanation{
			Name: s.config.Config.Name + "/ceiling", Limit: s.config.Ceiling(tenant), Binding: none, Decision: s.barred(), Provenance: ceilingBarred,
		})
	}
	explanation, decision := limits.Together(each...), s.Peek(tenant, n).Decision
	explanation.Name, explanation.Provenance = s.config.Config.Name, inProcess
	switch {
	case s.closed.Load():
		explanation.Decision, explanation.Binding, explanation.Provenance = decision, none, sharesClosed
	case own.limit == nil:
		explanation.Allowed, explanation.RetryAfter = decision.Allowed, decision.RetryAfter
	case each[0].Allowed:
		explanation.Decision, explanation.Binding = decision, 0
	default:
		explanation.Decision, explanation.Binding = decision, 1+limits.Together(each[1:]...).Binding
	}
	return explanation
}
