package single

import (
	"testing"
	"testing/synctest"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: A `Limiter` keeps `limits.Limiter`'s contract.
func TestLimiterContract(t *testing.T) {
	s := limitstest.Subject{
		Source: limits.SourceProcess, Promised: true, Turns: true,
		New: func(t *testing.T, p policy.Policy) limits.Limiter[string] {
			return limits.ForAnyKey[string](MustNew(p, nil))
		},
	}
	for _, c := range limitstest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, s) })
		})
	}
}
