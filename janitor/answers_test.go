package janitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
	"github.com/stretchr/testify/require"
)

// The writer died of a command twice: the janitor stops waiting for the answer.
func TestGivesUpACommandThatIsNeverAnswered(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		sleep(time.Second)
		_, ok := h.asked()
		require.True(t, ok)
		sleep(2 * time.Second)
		_, ok = h.asked()
		require.True(t, ok, "it waits for ever")
	})
}

// A late answer to a step that was given up says that there is more. It does not answer the next
// step.
func TestTakesNoLateAnswerForItsOwn(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.fill(3 * Budget)
		var late table.Command[int]
		for due := false; !due; {
			sleep(Every(idle))
			if command, ok := h.asked(); ok {
				late, due = command, time.Since(h.epoch) > idle+time.Second
			}
		}
		sleep(Every(idle)) // given up
		h.table.Apply(late)
		require.Equal(t, 2*Budget, h.table.View().Len())
		sleep(Every(idle))
		_, ok := h.asked()
		require.True(t, ok)
		synctest.Wait()
		_, ok = h.asked()
		require.False(t, ok, "it waits for its own answer")
	})
}

// An answer that comes before the janitor waits for it is not lost.
func TestAnswerMayComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := cmdqueue.New[table.Command[int]](depth)
		asked := 0
		keys := table.New[int](table.Options{
			Policy: policy.Must(policy.Funnel(1, 1, time.Second)), Idle: idle, MaxKeys: 10 * Budget,
		})
		h := &house{t: t, table: keys, epoch: time.Now()}
		h.fill(3 * Budget)
		j := New(queue, func() policy.Instant { return policy.Instant(time.Hour) }, idle, func(point string) {
			if point == "janitor: asked" {
				asked++
				command, _, ok := queue.TryReceive()
				require.True(t, ok)
				keys.Apply(command)
				queue.Done()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), Every(idle)+time.Millisecond)
		defer cancel()
		require.NoError(t, j.Run(ctx))
		require.Zero(t, keys.View().Len(), "all within one tick")
		require.Equal(t, 3, asked)
	})
}
