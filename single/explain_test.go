package single

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(policy.Must(policy.Funnel(4, 1, time.Second)))
		require.NoError(t, err)
		l.Take(4)
		x := l.Explain()
		assert.Equal(t, []any{true, false, time.Second, int64(4), int64(4), 4, 0},
			[]any{x.Known, x.Allowed, x.RetryAfter, x.Used, x.Of, len(x.Returns), x.Waiting})
		var call sync.WaitGroup
		call.Go(func() { assert.NoError(t, l.Wait(context.Background(), 1)) })
		synctest.Wait()
		assert.Equal(t, 1, l.Explain().Waiting)
		assert.Equal(t, 2*time.Second, l.Explain().RetryAfter, "behind the call that waits")
		call.Wait()

		require.NoError(t, l.SetPolicy(policy.Must(policy.Funnel(8, 1, time.Second))))
		assert.EqualValues(t, 8, l.Explain().Of)

		var none Limiter
		x = none.Explain()
		assert.Equal(t, []any{false, policy.Never}, []any{x.Allowed, x.RetryAfter})
		assert.Equal(t, "No limit. Every call is refused.", x.String())
	})
}
