package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

const (
	rollTTL  = 3 * time.Second
	rollKeep = time.Minute
)

// beats returns Heartbeat by the test's clock.
func beats(t *testing.T, s verbs) func(id, limit string) store.Roll {
	return func(id, limit string) store.Roll {
		t.Helper()
		r, err := s.Heartbeat(context.Background(), store.Beat{ID: id, TTL: rollTTL, Keep: rollKeep, Limit: limit})
		require.NoError(t, err)
		return r
	}
}

// Servers count by Redis's clock until they leave or their TTL passes, and are remembered for
// longer.
func TestHeartbeat(t *testing.T) {
	ctx := context.Background()
	var clock int64 = 1_000_000
	eachStore(t, &clock, func(t *testing.T, s verbs, _ func(policy.Policy) *store.Limit) {
		server := beats(t, s)
		beat := func(id string, present, remembered int) {
			t.Helper()
			r := server(id, "any")
			assert.Equal(t, []int{present, remembered}, []int{r.Present, r.Remembered})
			assert.Equal(t, policy.Instant(clock*1000), r.Now)
		}
		beat("a", 1, 1)
		beat("b", 2, 2)
		beat("a", 2, 2)
		clock += 2_999_999
		beat("c", 3, 3)
		clock++
		beat("c", 1, 3)
		beat("d", 2, 4)
		require.NoError(t, s.Leave(ctx, "d"))
		beat("c", 1, 3)
		require.NoError(t, s.Leave(ctx, "never there"))
		for range 59 {
			clock += 1_000_000
			beat("c", 1, 3)
		}
		clock += 1_000_000
		beat("c", 1, 1)
	})
}

// After an outage of any length, and any number of them, the first beat finds all servers.
func TestOutageForgetsNoServer(t *testing.T) {
	var clock int64 = 1_000_000
	eachStore(t, &clock, func(t *testing.T, s verbs, _ func(policy.Policy) *store.Limit) {
		server := beats(t, s)
		for _, id := range []string{"a", "b", "c", "d"} {
			server(id, "any")
		}
		for i, away := range []time.Duration{3300 * time.Millisecond, time.Hour, 4 * time.Second, 50 * time.Minute} {
			clock += away.Microseconds()
			r := server([]string{"a", "b", "c", "d"}[i], "any")
			require.Equal(t, 4, r.Present)
			require.Equal(t, 4, r.Remembered, "after %v", away)
			require.Equal(t, 5, server("x", "any").Present)
			require.NoError(t, s.Leave(context.Background(), "x"))
			clock += (time.Second).Microseconds()
		}
		for i := range 64 {
			if r := server("b", "any"); i > 3 {
				require.Equal(t, 1, r.Present)
			}
			clock += time.Second.Microseconds()
		}
		require.Equal(t, 1, server("b", "any").Remembered, "those that do not come back are forgotten")
	})
}

// Servers of different epochs count and forget each other as if they had one, but each has its own
// time.
func TestRollOfSeveralEpochs(t *testing.T) {
	client := connect(t, shared)
	epochs := []time.Time{store.DefaultEpoch, store.DefaultEpoch.AddDate(-1, 0, 0), store.DefaultEpoch.Add(time.Hour)}
	server := func(o store.Options, i int) store.Roll {
		t.Helper()
		o.Epoch = epochs[i]
		return beats(t, store.New(client, o))(fmt.Sprint(i), fmt.Sprint("limit ", i))
	}
	now := store.DefaultEpoch.Add(100 * 24 * time.Hour)
	for last := range epochs {
		name := own(t)
		beat := func(i int) store.Roll {
			t.Helper()
			r := server(store.Options{Name: name, Clock: func() int64 { return now.Sub(epochs[i]).Microseconds() }}, i)
			require.Equal(t, policy.Instant(now.Sub(epochs[i])), r.Now)
			return r
		}
		start := now
		for range 2 {
			for i := range epochs {
				beat(i)
			}
		}
		r := beat(last)
		require.Equal(t, []int{3, 3}, []int{r.Present, r.Remembered})
		var kept []store.KeptLimit
		for i := range epochs {
			kept = append(kept, store.KeptLimit{Text: fmt.Sprint("limit ", i), Since: policy.Instant(start.Sub(epochs[last]))})
		}
		require.ElementsMatch(t, kept, r.Limits)
		for gone := time.Duration(0); gone < rollTTL+rollKeep; gone += time.Second {
			r := beat(last)
			require.Equal(t, 3, r.Remembered, "after %v", gone)
			if gone >= rollTTL {
				require.Equal(t, 1, r.Present, "after %v", gone)
				require.Len(t, r.Limits, 1)
			}
			now = now.Add(time.Second)
		}
		require.Equal(t, 1, beat(last).Remembered, "they are forgotten")
	}

	byRedis := store.Options{Name: own(t)}
	for i := range epochs {
		require.Equal(t, i+1, server(byRedis, i).Present)
	}
	r := server(byRedis, 0)
	require.Equal(t, 3, r.Present)
	require.Len(t, r.Limits, 3)
	require.InDelta(t, time.Since(epochs[0]), time.Duration(r.Now), float64(time.Hour)) // wall: two clocks of this machine
	require.Less(t, integer(t, client, "PTTL", "ral:"+byRedis.Name+":servers"), 25*time.Hour.Milliseconds())
}

func TestRollEnds(t *testing.T) {
	client := connect(t, shared)
	s := store.New(client, store.Options{Name: own(t)})
	_, err := s.Heartbeat(context.Background(), store.Beat{ID: "a", TTL: time.Second, Keep: time.Minute, Limit: "any"})
	require.NoError(t, err)
	roll := fmt.Sprintf("ral:TestRollEnds-%d:servers", names.Load())
	for _, name := range []string{roll, fmt.Sprintf("ral:TestRollEnds-%d:limits{%s}", names.Load(), roll)} {
		assert.InDelta(t, 24*time.Hour.Milliseconds(), integer(t, client, "PTTL", name), 10_000)
	}
}

func TestRollTellsLimits(t *testing.T) {
	var clock int64 = 1_000_000
	eachStore(t, &clock, func(t *testing.T, s verbs, _ func(policy.Policy) *store.Limit) {
		server := beats(t, s)
		at := func(us int64) policy.Instant { return policy.Instant(us * 1000) }
		require.Equal(t, []store.KeptLimit{{Text: "funnel, %d+", Since: at(1_000_000)}}, server("a", "funnel, %d+").Limits)
		clock += 1_000_000
		both := []store.KeptLimit{{Text: "funnel, %d+", Since: at(1_000_000)}, {Text: "window", Since: at(2_000_000)}}
		require.ElementsMatch(t, both, server("b", "window").Limits)
		clock += 1_000_000
		require.ElementsMatch(t, both, server("a", "funnel, %d+").Limits)
		for range 3 {
			clock += 1_000_000
			server("b", "window")
		}
		require.Equal(t, both[1:], server("b", "window").Limits, "a is gone")
		require.ElementsMatch(t, both, server("a", "funnel, %d+").Limits, "a is back, as it was")
		clock += time.Hour.Microseconds()
		r := server("b", "window")
		require.ElementsMatch(t, both, r.Limits, "an outage changes nothing")
	})
}

func TestRollOfACluster(t *testing.T) {
	nodes := redistest.StartCluster(t, redistest.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{nodes[0].Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for _, o := range []store.Options{{Name: "a"}, {Name: "b", Tag: "t"}, {Name: "c:d"}} {
		server := beats(t, store.New(client, o))
		server("1", "any")
		require.Equal(t, 2, server("2", "any").Present)
	}
}
