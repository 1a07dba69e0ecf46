package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
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

// Promise: A record of an engine from its beginning is replayed decision by decision, for each kind of limit and for several limits, with resets, blocks, refunds and changes of the limit, if calls of a key do not overlap.
func TestRecordIsReplayedDecisionByDecision(t *testing.T) {
	for _, c := range []struct{ limits, changes []string }{
		{[]string{"funnel 10, 2/s"}, []string{"funnel 4, 3/s", "funnel 15, 1/s"}}, {[]string{"queue 4, 2/s"}, []string{"queue 7, 3/s"}},
		{[]string{"bursty 2/s, 9"}, []string{"bursty 3/s, 5"}}, {[]string{"warming up 3/s over 4s, cold 3"}, []string{"warming up 2/s over 3s, cold 2"}},
		{[]string{"window 7/3s"}, []string{"window 5/3s", "window 9/5s"}}, {[]string{"window 7/3s aligned"}, []string{"window 5/3s aligned"}},
		{[]string{"window 60/day in Europe/Berlin"}, []string{"window 40/day in Europe/Berlin"}}, {[]string{"sliding 7/3s"}, []string{"sliding 5/3s", "sliding 20/8s"}},
		{[]string{"at most 7/3s"}, []string{"at most 5/3s", "at most 6/3s"}}, {[]string{"in flight 6, 20s at most"}, []string{"in flight 4, 20s at most", "in flight 7, 30s at most"}},
		{[]string{"funnel 10, 2/s", "sliding 15/10s", "window 100/m aligned"}, nil}, {[]string{"in flight 5, 1m at most", "funnel 10, 2/s"}, nil},
	} {
		t.Run(strings.Join(c.limits, " and "), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record.log")
			requests, refused, blocked, changed := int64(0), int64(0), int64(0), int64(0)
			synctest.Test(t, func(t *testing.T) {
				var policies []policy.Policy
				for _, text := range c.limits {
					policies = append(policies, policy.Must(policy.Parse(text)))
				}
				tiers := must.Get(engine.NewTiered[string](engine.Config{Policy: policies[0]}, policies[1:]...))
				own := tiers.Engines()[0]
				var limiter limits.Limiter[string] = tiers
				if len(policies) == 1 {
					limiter = own
				}
				time.Sleep(123_456_789)
				r := must.Get(limits.Record(limiter, limits.RecordConfig{Path: path}))
				defer func() { require.NoError(t, tiers.Close()) }()
				defer func() { require.NoError(t, r.Close()) }()
				random := rand.New(rand.NewPCG(21, 22))
				count := func(a *limits.Answer, key string) {
					requests++
					if !a.Allowed {
						refused++
						if own.Blocked(key) > 0 {
							blocked++
						}
					}
				}
				// meddle does by hand what operators do to a key or to the limit.
				meddle := func(key string) {
					switch random.IntN(12) {
					case 0:
						r.Reset(key)
						a := must.Get(r.Admit(t.Context(), key, 2))
						count(&a, key)
					case 1:
						require.NoError(t, r.Block(key, time.Duration(random.Int64N(int64(3*time.Second)))))
					case 2:
						require.NoError(t, r.Block(key, 0))
					case 3:
						r.Refund(key, random.Int64N(5)-2)
					case 4:
						if all := append(c.changes, c.limits[0]); len(all) > 1 && random.IntN(4) == 0 {
							before := own.Limit().String()
							require.NoError(t, r.SetPolicy(policy.Must(policy.Parse(all[random.IntN(len(all))]))))
							if own.Limit().String() != before {
								changed++
							}
						}
					}
				}
				var inUse []limits.Grant
				for range 4_000 {
					if random.IntN(3) > 0 {
						time.Sleep(time.Duration(random.Int64N(int64(time.Second / 2))))
					}
					call := limits.Call[string]{Key: fmt.Sprint("key ", random.IntN(5)), N: 1 + random.Int64N(3)}
					if len(policies) == 1 && !policies[0].Delays() && random.IntN(10) == 0 {
						call.Patience = time.Second
					}
					if random.IntN(2) == 0 {
						a := must.Get(r.Admit(t.Context(), call.Key, call.N))
						count(&a, call.Key)
						continue
					}
					g := must.Get(r.Hold(t.Context(), call))
					count(&g.Answer, call.Key)
					meddle(call.Key)
					switch inUse = append(inUse, g); {
					case strings.HasPrefix(c.limits[0], "in flight"):
						if i := random.IntN(len(inUse)); random.IntN(3) > 0 {
							require.NoError(t, inUse[i].Release(t.Context()))
						}
					case random.IntN(2) == 0:
						require.NoError(t, g.Settle(t.Context(), random.Int64N(5)))
					}
					meddle(fmt.Sprint("key ", random.IntN(5)))
				}
				require.Zero(t, r.Stats())
			})
			result := replayedRecord(t, path, c.limits...)
			assert.Equal(t, requests, result.Requests)
			assert.Equal(t, refused, result.WasRefused)
			assert.Equal(t, refused, result.Scenarios[0].Refused)
			assert.Equal(t, [2]replay.Change{}, [2]replay.Change{result.Newly, result.Lifted})
			assert.Equal(t, []int64{blocked, changed}, []int64{result.Blocked, result.Followed})
			assert.GreaterOrEqual(t, changed, int64(len(c.changes)*3))
			assert.Greater(t, blocked, int64(20))
			assert.Greater(t, refused-blocked, int64(60))
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

// Promise: In a record of an engine whose limit changes under load, a replay decides otherwise on at most the calls during which the limit changed.
func TestChangesUnderLoadAreReplayed(t *testing.T) {
	// So many lines fit the buffers of the recorder, and are never lost.
	const maxCalls = 8_000
	path := filepath.Join(t.TempDir(), "record.log")
	limit := func(capacity int) policy.Policy {
		return policy.Must(policy.Parse(fmt.Sprintf("funnel %d, 1/d", capacity)))
	}
	e := must.Get(engine.New[int](engine.Config{Policy: limit(1)}))
	r := must.Get(limits.Record(e, limits.RecordConfig{Path: path}))
	var begun, done, calls, straddles atomic.Int64
	var group sync.WaitGroup
	group.Go(func() {
		for calls.Load() < maxCalls && begun.Load() < 500 {
			change := begun.Add(1)
			if err := r.SetPolicy(limit(1 + int(change%2))); err != nil {
				panic(err)
			}
			done.Add(1)
		}
	})
	for calls.Load() < maxCalls {
		changes, before := begun.Load(), e.Limit()
		must.Get(r.Admit(t.Context(), int(calls.Add(1)), 2))
		// A limit that is the same as before may have changed twice.
		if e.Limit() != before || begun.Load() > changes+1 {
			straddles.Add(1)
		}
		for done.Load() < calls.Load()/200 {
			runtime.Gosched()
		}
	}
	group.Wait()
	require.NoError(t, r.Close())
	require.NoError(t, e.Close())
	require.Zero(t, r.Stats())
	result := replayedRecord(t, path, "funnel 1, 1/d")
	assert.Equal(t, calls.Load(), result.Requests)
	assert.Equal(t, result.LimitChanges, result.Followed)
	assert.GreaterOrEqual(t, result.Followed, int64(maxCalls/200))
	assert.LessOrEqual(t, result.Newly.Requests+result.Lifted.Requests, straddles.Load())
}

// Promise: A record of an engine that was loaded from a saved state is replayed decision by decision with `ral replay --state`.
func TestRecordFromASavedStateIsReplayed(t *testing.T) {
	for _, text := range []string{"funnel 20, 1/m", "bursty 1/m, 20", "warming up 2/m over 4m, cold 3", "window 20/h", "window 20/h aligned", "window 20/day in Asia/Tokyo", "sliding 20/h", "at most 20/h"} {
		t.Run(text, func(t *testing.T) {
			dir := t.TempDir()
			path, statePath := filepath.Join(dir, "record.log"), filepath.Join(dir, "state")
			refused := int64(0)
			synctest.Test(t, func(t *testing.T) {
				config := engine.Config{Policy: policy.Must(policy.Parse(text))}
				e := must.Get(engine.New[string](config))
				time.Sleep(12345678 * time.Microsecond)
				random := rand.New(rand.NewPCG(3, 4))
				for range 60 {
					e.Take(fmt.Sprint("key ", random.IntN(5)), 1+random.Int64N(2))
					time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
				}
				require.NoError(t, e.Block("key 4", 10*time.Minute))
				var state bytes.Buffer
				require.NoError(t, e.Save(&state))
				require.NoError(t, e.Close())
				require.NoError(t, os.WriteFile(statePath, state.Bytes(), 0o600))
				time.Sleep(7 * time.Second)
				e = must.Get(engine.Load[string](&state, config))
				r := must.Get(limits.Record(e, limits.RecordConfig{Path: path, ShowKeys: true}))
				for range 600 {
					if !must.Get(r.Admit(t.Context(), fmt.Sprint("key ", random.IntN(6)), 1)).Allowed {
						refused++
					}
					time.Sleep(time.Duration(random.Int64N(int64(4 * time.Second))))
				}
				require.NoError(t, r.Close())
				require.NoError(t, e.Close())
			})
			out, err := onLog(t, "", "replay", path, "--limit", text, "--state", statePath, "--json")
			require.NoError(t, err)
			var d replayed
			require.NoError(t, json.Unmarshal([]byte(out), &d))
			assert.Equal(t, [2]replay.Change{}, [2]replay.Change{d.Result.Newly, d.Result.Lifted})
			assert.Equal(t, refused, d.Result.Scenarios[0].Refused)
			assert.Greater(t, refused, int64(100))
			assert.GreaterOrEqual(t, d.Result.Loaded, int64(5))
			assert.Positive(t, d.Result.Blocked)
			without := replayedRecord(t, path, text)
			assert.NotZero(t, without.Newly.Requests+without.Lifted.Requests, "the state matters")
		})
	}
}

// Promise: `ral replay --state` says how many keys of the state the log has, and `ral replay` how many lines a record lacks.
func TestReplayClaimsNoMoreThanTheRecordTells(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "record.log"), filepath.Join(dir, "state")
	e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Parse("funnel 2, 1/h"))}))
	e.Take("a", 1)
	e.Take("b", 2)
	file := must.Get(os.Create(state))
	require.NoError(t, e.Save(file))
	require.NoError(t, file.Close())
	for _, c := range []struct {
		showKeys    bool
		limit, want string
	}{
		{true, "funnel 2, 1/h", "2 keys began as in the state, and the log has requests of 1 of them. Other keys began without debts.\n"},
		{false, "funnel 2, 1/h", "2 keys began as in the state, and the log has requests of 0 of them. Other keys began without debts. A record has the keys of a state only if it shows its keys"},
		{true, "funnel 3, 1/h", "No key began as in the state, which has no limit with the text of one that is replayed."},
	} {
		require.NoError(t, os.RemoveAll(path))
		r := must.Get(limits.Record(e, limits.RecordConfig{Path: path, ShowKeys: c.showKeys}))
		must.Get(r.Admit(t.Context(), "a", 1))
		must.Get(r.Admit(t.Context(), "c", 1))
		require.NoError(t, r.Close())
		text, err := onLog(t, "", "replay", path, "--limit", c.limit, "--state", state)
		require.NoError(t, err)
		assert.Contains(t, text, c.want)
	}
	text := string(must.Get(os.ReadFile(path)))
	text, err := onLog(t, text+text+"ral 1795930621000000007 lost 0 12 0 0\n", "replay", "-", "--limit", "funnel 2, 1/h")
	require.NoError(t, err)
	assert.NotContains(t, text, "began anew", "each file of a record begins with the epoch")
	assert.Contains(t, text, "The record lacks 12 lines that its Recorder lost. Decisions after them may differ")
	require.NoError(t, e.Close())

	e = must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Parse("funnel 2, 1/h"))}))
	r := must.Get(limits.Record(e, limits.RecordConfig{Path: path, ShowKeys: true}))
	must.Get(r.Admit(t.Context(), "a", 1))
	require.NoError(t, errors.Join(r.Close(), e.Close()))
	text, err = onLog(t, "", "replay", path, "--limit", "funnel 2, 1/h")
	require.NoError(t, err)
	assert.Contains(t, text, "The recorded engine began anew (1 time). Keys go on here with what they owed")
}

func TestStatesThatDoNotSuitAreErrors(t *testing.T) {
	e := must.Get(engine.New[int](engine.Config{Policy: policy.Must(policy.Parse("funnel 2, 1/m"))}))
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "state")))
	require.NoError(t, e.Save(file))
	require.NoError(t, e.Close())
	require.NoError(t, file.Close())
	for path, want := range map[string]string{file.Name(): "want \"string\"", "/nowhere": "no such file", "files_test.go": "not a state file"} {
		_, err := onLog(t, accessLog("a"), "replay", "-", "--limit", "funnel 2, 1/m", "--state", path)
		assert.ErrorContains(t, err, want)
	}
}

// Promise: In the replay of a record under other limits, blocks by hand hold, and changes of the recorded limit are told apart.
func TestOtherLimitsDoNotFollowTheRecordedLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.log")
	synctest.Test(t, func(t *testing.T) {
		e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Parse("funnel 2, 1/h"))}))
		r := must.Get(limits.Record(e, limits.RecordConfig{Path: path, ShowKeys: true}))
		require.NoError(t, r.Block("k", time.Minute))
		must.Get(r.Admit(t.Context(), "k", 1))
		time.Sleep(time.Minute)
		must.Get(r.Admit(t.Context(), "k", 1))
		require.NoError(t, r.SetPolicy(policy.Must(policy.Parse("funnel 3, 1/h"))))
		must.Get(r.Admit(t.Context(), "k", 2))
		require.NoError(t, r.Close())
		require.NoError(t, e.Close())
	})
	figures := func(r *replay.Result) []int64 {
		return []int64{r.Requests, r.Scenarios[0].Refused, r.Blocked, r.LimitChanges, r.Followed}
	}
	assert.Equal(t, []int64{3, 1, 1, 1, 1}, figures(replayedRecord(t, path, "funnel 2, 1/h")))
	other := replayedRecord(t, path, "at most 2/h")
	assert.Equal(t, []int64{3, 2, 1, 1, 0}, figures(other))
	assert.EqualValues(t, 1, other.Scenarios[0].Bound[0].Refused, "no limit refused the blocked key")
	text, err := onLog(t, "", "suggest", path, "--rate", "1/h")
	require.NoError(t, err)
	assert.Contains(t, text, "\nfunnel 3, 1/h ")
	assert.Contains(t, text, "1 request of keys that were blocked by hand")
	assert.Contains(t, text, "The limits here did not follow the recorded limit (1 time): none had its text")
}

// Promise: In the replay of a record that goes on after a restart, a limit that follows the recorded limit begins again with the limit of each start.
func TestRestartBeginsWithItsOwnLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.log")
	limit := func(capacity int) policy.Policy {
		return policy.Must(policy.Parse(fmt.Sprintf("funnel %d, 1/s", capacity)))
	}
	run := func(before, after int) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(before) * time.Hour)
			e := must.Get(engine.New[string](engine.Config{Policy: limit(before)}))
			time.Sleep(time.Second)
			r := must.Get(limits.Record(e, limits.RecordConfig{Path: path}))
			for _, key := range []string{"a", "b"} {
				for range 12 {
					must.Get(r.Admit(t.Context(), key, 1))
				}
				require.NoError(t, r.SetPolicy(limit(after)))
			}
			require.NoError(t, errors.Join(r.Close(), e.Close()))
		})
	}
	run(5, 10)
	run(6, 10)
	run(10, 7)
	result := replayedRecord(t, path, "funnel 5, 1/s")
	assert.EqualValues(t, 72, result.Requests)
	assert.EqualValues(t, 7+2+6+2+2+5, result.WasRefused)
	assert.Equal(t, [2]replay.Change{}, [2]replay.Change{result.Newly, result.Lifted})
	assert.Equal(t, []int64{2, 4, 4}, []int64{result.Restarts, result.LimitChanges, result.Followed})
}
