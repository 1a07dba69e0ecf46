package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/policy"
)

const (
	rollTTL  = 3 * time.Second
	rollKeep = time.Minute
)

// Servers count by Redis's clock until they leave or their TTL passes, and are remembered for
// longer. An outage makes no server forget the others. TestRollIsTheFakes has the script.
func TestHeartbeat(t *testing.T) {
	clock := int64(1_000_000)
	s := storetest.New().Store(store.Options{Clock: func() int64 { return clock }})
	beat := func(id string, present, remembered int) {
		t.Helper()
		r, err := s.Heartbeat(t.Context(), store.Beat{ID: id, TTL: rollTTL, Keep: rollKeep, Limit: "limit of " + id})
		require.NoError(t, err)
		assert.Equal(t, []int{present, remembered, present}, []int{r.Present, r.Remembered, len(r.Limits)})
		assert.Equal(t, policy.Instant(clock*1000), r.Now)
	}
	beat("a", 1, 1)
	beat("b", 2, 2)
	beat("a", 2, 2)
	clock += 2_999_999
	beat("c", 3, 3)
	clock++
	beat("c", 1, 3)
	clock += 3600_000_000
	beat("a", 2, 3)
	require.NoError(t, s.Leave(t.Context(), "never there"))
	for _, c := range []struct{ seconds, present, remembered int }{{2, 2, 3}, {57, 1, 3}, {3, 1, 2}, {1, 1, 1}} {
		for range c.seconds {
			clock += 1_000_000
			beat("c", c.present, c.remembered)
		}
	}
}

// Foreign values under the names of the roll and its limits are an error that says what to do.
func TestWrongRoll(t *testing.T) {
	client := connect(t, shared)
	o := store.Options{Name: own(t)}
	roll := "ral:" + o.Name + ":servers"
	limits := "ral:" + o.Name + ":limits{" + roll + "}"
	for _, wrong := range [][]string{
		{"SET", roll, "x"},
		{"SET", limits, "x"},
		{"ZADD", limits, "9e15", "foreign"},
		{"ZADD", limits, "9e15", "12345"},
		{"ZADD", limits, "9e15", "twelve words"},
	} {
		require.NoError(t, ask(t, client, wrong...).Error())
		_, err := store.New(client, o).Heartbeat(t.Context(), store.Beat{ID: "a", TTL: rollTTL, Keep: rollKeep, Limit: "any"})
		require.ErrorIs(t, err, store.ErrNoRoll, "%v", wrong)
		require.NotErrorIs(t, err, store.ErrForeignValue, "it is not about a key")
		require.ErrorContains(t, err, roll)
		require.ErrorContains(t, err, "delete it")
		require.NoError(t, ask(t, client, "DEL", roll, limits).Error())
	}
}
