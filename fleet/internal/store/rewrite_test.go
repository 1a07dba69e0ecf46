package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func TestRewriteAll(t *testing.T) {
	ctx, client, clock := context.Background(), connect(t, shared), int64(1_000_000)
	s := clocked(t, client, &clock)
	l := limit(t, s, policy.Must(policy.FixedWindow(10, time.Second)))
	refund := func(word uint64, now policy.Instant) uint64 { return l.Policy().(policy.Refunder).Refund(word, now, 2) }
	must.Get(s.Take(ctx, l, "good", 8, 0))
	all := []store.Rewrite{{Tail: store.Tail("bad"), Next: refund}, {Tail: store.Tail("good"), Next: refund}}
	put(t, client, name(t, s, l, "bad"), "nonsense")
	assert.ErrorIs(t, s.RewriteAll(ctx, l, all, 0), store.ErrForeignValue)
	assert.Equal(t, "nonsense", get(t, client, name(t, s, l, "bad")))
	d := must.Get(s.Peek(ctx, l, "good"))
	assert.EqualValues(t, 4, d.Remaining, "the others are rewritten all the same")

	log := policy.Must(slidinglog.New(5, time.Second))
	var field *policy.FieldError
	assert.ErrorAs(t, s.RewriteAll(ctx, limit(t, s, log), all, 0), &field)
}

// A word computed too long ago is not written: its base may have recurred.
func TestRewriteAllComesInTimeOrNotAtAll(t *testing.T) {
	ctx, clock := context.Background(), int64(1_000_000)
	s := clocked(t, connect(t, shared), &clock)
	l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Second)))
	for _, late := range []int64{10_000, 10_001} {
		must.Get(s.Take(ctx, l, "key", 5, 0))
		called := 0
		err := s.RewriteAll(ctx, l, []store.Rewrite{{Tail: store.Tail("key"), Next: func(word uint64, now policy.Instant) uint64 {
			called++
			clock += late
			return l.Policy().(policy.Refunder).Refund(word, now, 5)
		}}}, 10*time.Millisecond)
		d, peeked := s.Peek(ctx, l, "key")
		require.NoError(t, peeked)
		if late == 10_000 {
			assert.NoError(t, err)
			assert.Equal(t, 1, called)
			assert.EqualValues(t, 10, d.Remaining)
		} else {
			assert.ErrorIs(t, err, store.ErrContended)
			assert.Greater(t, called, 1)
			assert.EqualValues(t, 5, d.Remaining)
		}
	}
}
