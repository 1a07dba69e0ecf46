package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// A tail of up to 130 bytes stands for a key of any length.
func TestTailStandsForTheKey(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Hour)))
	tails := map[string]bool{}
	for i, key := range []string{"a", "", "{b}", "}", strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 1<<16)} {
		tail := store.Tail(key)
		require.LessOrEqual(t, len(tail), 130)
		require.False(t, tails[tail])
		tails[tail] = true
		require.Equal(t, []error{nil}, s.ChargeEach(t.Context(), l, []store.Debt{{Tail: tail, Units: 3}}))
		standing, err := s.Peek(t.Context(), l, key)
		require.NoError(t, err)
		require.EqualValues(t, 7, standing.Remaining, "key %d", i)
	}
}
