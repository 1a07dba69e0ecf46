package limits_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/limits"
)

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := limits.Admitted; r <= limits.Unavailable; r++ {
		assert.NotEmpty(t, r.String())
		seen[r.String()] = true
	}
	assert.Len(t, seen, int(limits.Unavailable)+1)
	assert.Equal(t, "unknown", limits.Reason(-1).String())
	assert.Equal(t, "unknown", (limits.Unavailable + 1).String())
}
