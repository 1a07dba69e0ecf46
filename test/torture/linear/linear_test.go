package linear

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

var (
	lasting = flag.Duration("for", 0, "how long TestLinearizable goes on; 0 is the short part")
	seed    = flag.Uint64("seed", 1, "the seed of the workloads; 0 is another one each time")
	replay  = flag.String("history", "", "a file with a history for TestReplay to check")
	keep    = flag.String("keep", "", "the directory for histories that fail; the system's temporary one if empty")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	goleak.VerifyTestMain(m)
}

// perKey bounds the search for a key, which takes milliseconds.
const perKey = 10 * time.Minute

// run runs a workload and checks its history, kept on failure. from is the seed to report.
func run(t *testing.T, s Scenario, w Workload, from uint64) engine.Stats {
	t.Helper()
	history, stats, err := w.Run(&s)
	require.NoError(t, err)
	v := Check(&s, history, s.Taken(stats), perKey)
	h := &History{Scenario: s.Name, Seed: w.Seed, Taken: s.Taken(stats), Ops: history}
	if problem := h.judge(v); problem != "" {
		name := must.Get(h.Save(*keep))
		t.Errorf("%s, kills %v: %s\nthe same workload: go test ./linear -run TestLinearizable -seed %d\n"+
			"the same history: go test ./linear -run TestReplay -history %s", s.Name, w.Kills, problem, from, name)
	}
	return stats
}

// judge says what is wrong with a history of this verdict.
func (h *History) judge(v Verdict) string {
	switch {
	case len(v.Illegal) > 0:
		return fmt.Sprintf("no order explains the calls on keys %v", v.Illegal)
	case len(v.Undecided) > 0:
		return fmt.Sprintf("undecided: the calls on keys %v", v.Undecided)
	case v.Liberties > h.Taken:
		return fmt.Sprintf("it takes %d liberties to explain the calls, and the engine has counted %d", v.Liberties, h.Taken)
	}
	return ""
}

// Goroutines call all verbs on keys that come and go. Checked, in each scenario:
//
//  1. the calls on each key have an order in which the policy, as a pure function, gives their
//     answers;
//  2. that takes no more forgiven keys and unrecorded answers than the engine has counted;
//  3. the search decides for every key.
func TestLinearizable(t *testing.T) {
	short := *lasting == 0
	opsEach := 42_000
	if testenv.Race || testing.Short() {
		opsEach = 3_000
	}
	begin := time.Now()
	var total, keys, evicted, restarts, forgiven, full uint64
	for round := uint64(0); round == 0 || time.Since(begin) < *lasting; round++ {
		from := *seed + round<<8
		for i, s := range Scenarios() {
			for _, kills := range []bool{false, true} {
				w := Workload{Seed: from + uint64(i), Clients: 8, Ops: opsEach / 2, Kills: kills}
				stats := run(t, s, w, from)
				if s.InUse() {
					assert.Zero(t, stats.Forgiven, "%s: keys in use are given up", s.Name)
				}
				if t.Failed() {
					return
				}
				total += uint64(w.Ops)
				keys += uint64(stats.Keys)
				evicted += stats.Evicted
				restarts += stats.Restarts
				forgiven += stats.Forgiven
				full += stats.Full
			}
		}
		if !short {
			fmt.Fprintf(os.Stderr, "linear: %v, %d calls, seed %d\n", time.Since(begin).Round(time.Second), total, *seed)
		}
	}
	t.Logf("%d calls, %d evictions, %d restarts, %d forgiven, %d from a full table; seed %d",
		total, evicted, restarts, forgiven, full, *seed)
	assert.Positive(t, evicted, "nothing was evicted")
	assert.Positive(t, restarts, "the writer was never killed")
	if opsEach == 42_000 && !t.Failed() {
		assert.Positive(t, forgiven, "nothing was forgiven")
		assert.Positive(t, full, "no table was full")
		assert.GreaterOrEqual(t, total, uint64(1_000_000))
	}
}

// It decides on the word that it has read, and charges later.
func TestQueuedIsFoundOut(t *testing.T) {
	s := Broken()
	for n := range uint64(20) {
		w := Workload{Seed: *seed + n, Clients: 8, Ops: 4_000}
		history, stats, err := w.Run(&s)
		require.NoError(t, err)
		if v := Check(&s, history, s.Taken(stats), perKey); len(v.Illegal) > 0 {
			return
		}
	}
	t.Fatal("what it let pass was explained away")
}

// TestReplay checks a history from a file.
func TestReplay(t *testing.T) {
	if *replay == "" {
		t.Skip("-history names the file")
	}
	h := must.Get(Load(*replay))
	s := must.Get(scenarioNamed(h.Scenario))
	v := Check(&s, h.Ops, h.Taken, perKey)
	assert.Empty(t, h.judge(v))
	for _, key := range append(v.Illegal, v.Undecided...) {
		t.Logf("key %d:\n%s", key, explain(&s, h.Ops, h.Taken, key, perKey))
	}
}
