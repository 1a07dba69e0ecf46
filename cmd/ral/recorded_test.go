package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// replayedRecord replays a record under limits.
func replayedRecord(t *testing.T, path string, texts ...string) *replay.Result {
	t.Helper()
	args := []string{"replay", path, "--json"}
	for _, text := range texts {
		args = append(args, "--limit", text)
	}
	text, err := onLog(t, "", args...)
	require.NoError(t, err)
	var d replayed
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	require.Equal(t, "ral", d.Source.Form)
	require.Empty(t, d.Source.Unreadable)
	return d.Result
}

// Promise: A record of an engine from its beginning is replayed decision by decision, for each kind of limit and for several limits, if calls of a key do not overlap.
func TestRecordIsReplayedDecisionByDecision(t *testing.T) {
	for _, texts := range [][]string{
		{"funnel 10, 2/s"}, {"queue 4, 2/s"}, {"bursty 2/s, 9"}, {"warming up 3/s over 4s, cold 3"}, {"window 7/3s"}, {"window 7/3s aligned"},
		{"window 500/day in Europe/Berlin"}, {"sliding 7/3s"}, {"at most 7/3s"}, {"in flight 6, 20s at most"}, {"funnel 10, 2/s", "sliding 15/10s", "window 100/m aligned"},
		{"in flight 5, 1m at most", "funnel 10, 2/s"},
	} {
		t.Run(strings.Join(texts, " and "), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record.log")
			requests, refused := int64(0), int64(0)
			synctest.Test(t, func(t *testing.T) {
				var policies []policy.Policy
				for _, text := range texts {
					policies = append(policies, policy.Must(policy.Parse(text)))
				}
				tiers := must.Get(engine.NewTiered[string](engine.Config{Policy: policies[0]}, policies[1:]...))
				var limiter limits.Limiter[string] = tiers
				if len(texts) == 1 {
					limiter = tiers.Engines()[0]
				}
				time.Sleep(123_456_789)
				r := must.Get(limits.Record(limiter, limits.RecordConfig{Path: path}))
				defer func() { require.NoError(t, tiers.Close()) }()
				defer func() { require.NoError(t, r.Close()) }()
				random := rand.New(rand.NewPCG(21, 22))
				var inUse []limits.Grant
				for range 2_500 {
					if random.IntN(3) > 0 {
						time.Sleep(time.Duration(random.Int64N(int64(time.Second / 2))))
					}
					requests++
					call := limits.Call[string]{Key: fmt.Sprint("key ", random.IntN(5)), N: 1 + random.Int64N(3)}
					if len(texts) == 1 && !policies[0].Delays() && random.IntN(10) == 0 {
						call.Patience = time.Second
					}
					if random.IntN(2) == 0 {
						if a := must.Get(r.Admit(t.Context(), call.Key, call.N)); !a.Allowed {
							refused++
						}
						continue
					}
					g := must.Get(r.Hold(t.Context(), call))
					if !g.Allowed {
						refused++
					}
					switch inUse = append(inUse, g); {
					case strings.HasPrefix(texts[0], "in flight"):
						if i := random.IntN(len(inUse)); random.IntN(3) > 0 {
							require.NoError(t, inUse[i].Release(t.Context()))
						}
					case random.IntN(2) == 0:
						require.NoError(t, g.Settle(t.Context(), random.Int64N(5)))
					}
					if random.IntN(100) == 0 && len(texts) == 1 {
						r.Refund(call.Key, random.Int64N(5)-2)
						r.Reset(fmt.Sprint("key ", random.IntN(5)))
					}
				}
				require.Zero(t, r.Stats())
			})
			result := replayedRecord(t, path, texts...)
			assert.Equal(t, requests, result.Requests)
			assert.Equal(t, refused, result.WasRefused)
			assert.Equal(t, refused, result.Scenarios[0].Refused)
			assert.Equal(t, [2]replay.Change{}, [2]replay.Change{result.Newly, result.Lifted})
			assert.Greater(t, refused, int64(60))
			assert.Greater(t, requests-refused, int64(60))
			assert.EqualValues(t, 5, result.Keys)
		})
	}
}

// Promise: Calls of a key that overlap are the only ones of a record that a replay may decide otherwise.
func TestOverlappingCallsDifferWithinTheirOverlap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.log")
	e := must.Get(engine.New[int](engine.Config{Policy: policy.Must(policy.Parse("funnel 900, 1/d"))}))
	r := must.Get(limits.Record(e, limits.RecordConfig{Path: path}))
	var running [3]atomic.Int64
	var overlaps atomic.Int64
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			for n := range 1_000 {
				key := (i + n) % 3
				if running[key].Add(1) > 1 {
					overlaps.Add(1)
				}
				_, err := r.Admit(t.Context(), key, 1)
				running[key].Add(-1)
				if err != nil {
					panic(err)
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, r.Close())
	require.NoError(t, e.Close())
	require.Zero(t, r.Stats())
	result := replayedRecord(t, path, "funnel 900, 1/d")
	assert.EqualValues(t, 6_000, result.Requests)
	assert.EqualValues(t, 3_300, result.WasRefused)
	assert.EqualValues(t, 3_300, result.Scenarios[0].Refused)
	assert.Equal(t, result.Newly.Requests, result.Lifted.Requests)
	assert.LessOrEqual(t, result.Newly.Requests, overlaps.Load())
}

// Promise: A key that was blocked by hand, and a limit that changed, are told apart in the replay of a record.
func TestBlocksOfARecordAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.log")
	synctest.Test(t, func(t *testing.T) {
		e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Parse("funnel 2, 1/h"))}))
		r := must.Get(limits.Record(e, limits.RecordConfig{Path: path, ShowKeys: true}))
		require.NoError(t, r.Block("k", time.Minute))
		must.Get(r.Admit(t.Context(), "k", 1))
		time.Sleep(time.Minute)
		must.Get(r.Admit(t.Context(), "k", 1))
		require.NoError(t, r.SetPolicy(policy.Must(policy.Parse("funnel 3, 1/h"))))
		require.NoError(t, r.Close())
		require.NoError(t, e.Close())
	})
	result := replayedRecord(t, path, "funnel 2, 1/h")
	assert.Equal(t, []int64{1, 1, 1, 0}, []int64{result.Blocked, result.LimitChanges, result.Requests, result.Scenarios[0].Refused})
	text, err := onLog(t, "", "suggest", path, "--rate", "1/h")
	require.NoError(t, err)
	assert.Contains(t, text, "1 request of blocked keys did not run.")
	assert.Contains(t, text, "The limit changed while it was recorded (1 time).")
}
