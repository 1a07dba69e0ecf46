package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// limiter returns a result of three rounds at so many nanoseconds a call on one processor.
func limiter(name string, ns float64) bench.Result {
	r := bench.Result{
		Contender:    bench.Contender{Name: name, Exact: true, Promise: bench.TokenBucket},
		OpsPerSecond: bench.SpreadOf([]float64{1e9 / ns}), NsPerOp: bench.SpreadOf([]float64{ns}),
		Audit:   &bench.Audit{Calls: 9, Admitted: 5, Allowed: 5, BucketAllowed: 5, Possible: 5, Binds: true},
		Latency: &bench.Latency{P999: time.Duration(3 * ns), Worst: time.Duration(9 * ns)},
	}
	for range 3 {
		r.Rounds = append(r.Rounds, bench.Pass{Calls: 1000, CPU: time.Duration(1000 * ns), Elapsed: time.Duration(1000 * ns)})
		r.LatencyRounds = append(r.LatencyRounds, *r.Latency)
	}
	return r
}

func yardstick(ns float64) bench.Result {
	r := limiter("xsync map", ns)
	r.Yardstick, r.Exact, r.Promise, r.Audit = bench.YardstickMap, false, "", nil
	return r
}

// call returns a result of a call of Ral, not compared with other calls.
func call(name, like string, ns float64) bench.Result {
	r := limiter(name, ns)
	r.Apart, r.Like = true, like
	return r
}

func in(name string, results ...bench.Result) bench.WorkloadReport {
	return bench.WorkloadReport{Workload: bench.Workload{Name: name}, CPU: 2, Results: results}
}

func run(workloads ...bench.WorkloadReport) Document {
	return Document{Settings: Settings{Scale: 1, CPUs: []int{2}}, Report: bench.Report{Watched: true, Workloads: workloads}}
}

func verbs(peek, wait float64) bench.WorkloadReport {
	w := in(bench.VerbsWorkload, call("Ral", "", 50), call("Ral Peek", "", peek), call("Ral Wait", "", wait), call("x/time Wait", "Ral Wait", 100))
	w.Base = ral
	return w
}

// changed changes a result.
func changed(r bench.Result, by func(*bench.Result)) bench.Result {
	by(&r)
	return r
}

func inexact(r *bench.Result) { r.Exact = false }

// over has admitted more than its promise.
func over(r *bench.Result) { r.Audit.Over, r.Audit.OverPasses, r.Audit.Passes = 3, 3, 12 }

// disturbed has the first round that many times, and so many of these disturbed.
func disturbed(n, rounds int) func(r *bench.Result) {
	return func(r *bench.Result) {
		r.Rounds, r.LatencyRounds, r.Disturbed = slices.Repeat(r.Rounds[:1], rounds), slices.Repeat(r.LatencyRounds[:1], rounds), n
		for i := range n {
			r.Rounds[i].Disturbed, r.LatencyRounds[i].Disturbed = true, true
			r.Rounds[i].CPU *= 9
			r.LatencyRounds[i].P999 *= 9
		}
	}
}

// allocating has so many allocations in each round of 1000 calls.
func allocating(n uint64) func(r *bench.Result) {
	return func(r *bench.Result) {
		for i := range r.Rounds {
			r.Rounds[i].Allocs = n
		}
	}
}

// with changes a document.
func with(d Document, by func(*Document)) Document {
	by(&d)
	return d
}

// testdata/verdicts.txt has what is said of each run, its goals, and Ral beside its peers: read its
// changes.
func TestVerdictsMatchTheGoldenFile(t *testing.T) {
	uniform := in("uniform", limiter("Ral", 60), limiter("a", 80))
	flood := in("flood", limiter("Ral", 90), limiter("a", 60), limiter("b", 70))
	manyMissed := in(bench.LimitsTakeWorkload, call("Ral", "", 1))
	manyMissed.Base = ral
	for _, name := range []string{"Take", "AtMost", "Bursty", "FixedWindow", "Queue", "SlidingWindow", "WarmingUp"} {
		manyMissed.Results = append(manyMissed.Results, call("Ral "+name, "", 100))
	}
	floor := changed(yardstick(40), func(r *bench.Result) { r.Name, r.Yardstick = "floor", bench.YardstickFloor })
	hotPass := in("hot-pass", changed(floor, disturbed(0, 5)), yardstick(50), limiter("Ral", 60), changed(limiter("x/time+sync.Map", 100), disturbed(2, 5)))
	hotPass.Results[2] = changed(limiter("Ral", 60), disturbed(1, 5))
	growth := in("growth", changed(limiter("Ral", 1e6), disturbed(0, 1)), limiter("a", 5e5))
	bothDisturbed := in("hot-refused", changed(limiter("Ral", 90), disturbed(3, 5)), changed(limiter("a", 60), disturbed(2, 5)))
	bestByFigure := in("uniform", changed(limiter("Ral", 50), func(r *bench.Result) { r.OpsPerSecond = bench.Spread{} }), limiter("slow", 200), limiter("quick", 100))
	planned := func(rounds int, w bench.WorkloadReport) bench.WorkloadReport {
		w.Rounds = rounds
		return w
	}
	slower := func(r *bench.Result) { // the machine slows down during the run
		for i := range r.Rounds {
			r.Rounds[i].CPU *= time.Duration(1 + 10*i)
		}
	}
	cut := with(run(planned(4, in("uniform", limiter("Ral", 1))), in("growth")), func(d *Document) {
		d.Settings.Budget = time.Minute
		d.LeftOut = []bench.LeftOut{
			{Workload: "zipf", CPU: 2, Contenders: []string{"Ral", "a", "b"}},
			{Workload: "growth", CPU: 2, Contenders: []string{"a", "b"}},
		}
	})

	var said strings.Builder
	for _, c := range []struct {
		about string
		d     Document
	}{
		{"nothing", Document{}},
		{"results without rounds", run(in("memory", bench.Result{Contender: bench.Contender{Name: "Ral", Exact: true}}, bench.Result{Contender: bench.Contender{Name: "a", Exact: true}}))},
		{"Ral wins", run(in("hot-pass", yardstick(50), limiter("Ral", 50), limiter("a", 100), changed(limiter("Ral Queued", 1), inexact)), uniform)},
		{"Ral loses", run(uniform, flood, in("flood-full", limiter("Ral", 90)))},
		{"a peer broke its promise", run(in("hot-refused", limiter("Ral", 1), changed(limiter("a", 1), over)))},
		{"Ral broke its promise too", run(in("hot-refused", changed(limiter("Ral", 1), over), changed(limiter("a", 1), over)))},
		{"a peer without a promise is above its limit", run(in("hot-refused", changed(changed(limiter("a", 1), over), inexact)))},
		{"goals are missed, by undisturbed rounds", run(hotPass, growth, bestByFigure, bothDisturbed)},
		{"the same, interrupted", with(run(hotPass, growth, bestByFigure), func(d *Document) { d.Interrupted = true })},
		{"the floor in C is no peer", run(in("hot-pass", changed(yardstick(20), func(r *bench.Result) { r.Name, r.Yardstick = bench.CFloorName, bench.YardstickC }), limiter("Ral", 50)))},
		{"goals compare within rounds", run(in("hot-refused", changed(limiter("Ral", 50), slower), changed(limiter("go-limiter", 100), slower)))},
		{"a clock of Ral's is no peer", run(in("uniform", limiter("Ral", 60), limiter("Ral package time", 40), limiter("juju+xsync", 100)))},
		{"peek within its goal of 1.1, wait beyond its goal of 1.6", run(verbs(55, 100))},
		{"calls are compared with their likes", run(verbs(300, 120))},
		{"unless those broke their promise", run(in(bench.VerbsWorkload, call("Ral Wait", "", 120), changed(call("x/time Wait", "Ral Wait", 100), over)))},
		{"many goals are missed", run(manyMissed, verbs(300, 300))},
		{"a refusal is a multiple of a call that passes", run(
			planned(3, bench.WorkloadReport{Workload: bench.Workload{Name: bench.SeveralWorkload, Base: ral}, CPU: 2, Results: []bench.Result{call("Ral", "", 50)}}),
			planned(3, bench.WorkloadReport{Workload: bench.Workload{Name: bench.SeveralRefusedWorkload, Base: ral}, CPU: 2, Results: []bench.Result{call("Ral", "", 25), call("Ral Tiered", "", 100)}}))},
		{"allocations of the background miss no goal", run(in(bench.SeveralWorkload, changed(call("Ral TakeAll", "", 50), allocating(1040))))},
		{"other allocations do", run(in(bench.SeveralWorkload, changed(call("Ral TakeAll", "", 50), allocating(1060))))},
		{"a busy machine", run(in("uniform", changed(limiter("Ral", 1), disturbed(2, 3))))},
		{"one round, scaled, on a system that does not tell", with(run(in("uniform", changed(limiter("Ral", 1), disturbed(0, 1)))), func(d *Document) {
			d.Settings.Scale, d.Watched = 0.1, false
		})},
		{"the budget cut rounds", cut},
		{"with several processors", with(cut, func(d *Document) { d.Settings.CPUs = []int{1, 2} })},
		{"the user ended it", with(cut, func(d *Document) { d.Interrupted = true })},
		{"rounds that disagree, and peers not to be compared", run(
			in("hot-pass", yardstick(50), limiter("Ral", 50), changed(limiter("Ral Queued", 1), inexact), limiter("a", 100), limiter("b", 80),
				changed(limiter("inexact", 40), inexact), changed(limiter("broken", 50), over)),
			in("uniform", limiter("Ral", 50), changed(limiter("a", 60), func(r *bench.Result) { r.Rounds[0].CPU = 1000 })),
			in("alone", limiter("Ral", 50), changed(limiter("inexact", 40), inexact)))},
	} {
		fmt.Fprintf(&said, "=== %s\n", c.about)
		said.WriteString("on the first screen:")
		for _, v := range FirstScreen(c.d) {
			said.WriteString(" " + v.Title)
		}
		said.WriteString("\n")
		for _, v := range append(VerdictOf(c.d), Shortfalls(c.d)...) {
			fmt.Fprintf(&said, "%s: %s%s\n", v.Title, v.Text, map[bool]string{v.Good: " (good)", v.Bad: " (BAD)"}[true])
		}
		for _, r := range GoalTable(c.d).Rows {
			fmt.Fprintf(&said, "goal: %s\n", strings.Join(r.Cells, ", "))
		}
		if beside, _ := Beside(c.d); len(beside.Rows) > 0 {
			said.WriteString("beside:")
			for _, head := range beside.Columns {
				said.WriteString(" " + head.Name)
			}
			said.WriteString("\n")
			for _, r := range beside.Rows {
				fmt.Fprintf(&said, "beside: %s\n", strings.Join(r.Cells, ", "))
			}
		}
	}
	must.EqualFile(t, "testdata/verdicts.txt", said.String())
}

func TestGoalsAreOfContendersThatThereAre(t *testing.T) {
	for _, g := range goals {
		if g.Contender == ral && g.other != ral || !g.isOf(Document{}) {
			continue
		}
		for contender, workload := range map[string]string{g.Contender: g.Workload, g.other: max(g.otherIn, g.Workload)} {
			found := contender == ""
			for _, c := range bench.RalCalls() {
				found = found || c.Name == contender && slices.Contains(c.For, workload)
			}
			assert.True(t, found, "%s in %s", contender, workload)
		}
	}
	all := append(fleetbench.Contenders(), servebench.Contenders()...)
	known := bench.Names(slices.Concat(bench.All(1), fleetbench.Workloads(1), servebench.Workloads(1)))
	for _, g := range goals {
		assert.Contains(t, known, g.Workload)
		assert.Contains(t, known, max(g.otherIn, g.Workload))
		for _, w := range append(fleetbench.Workloads(1), servebench.Workloads(1)...) {
			for _, contender := range []string{g.Contender, g.other} {
				assert.True(t, g.Workload != w.Name || contender == "" || slices.ContainsFunc(all, func(c bench.Contender) bool {
					return c.Name == contender && (slices.Contains(c.For, w.Name) || !w.Apart)
				}), "%s in %s", contender, w.Name)
			}
		}
	}
	assert.True(t, HasGoal(bench.SeveralWorkload))
	assert.False(t, HasGoal("audit-hot"))
}

// measured returns a result of rounds of a second with so many calls, each with this processor time.
func measured(name string, ns time.Duration, calls ...int64) bench.Result {
	r := bench.Result{Contender: bench.Contender{Name: name, Exact: true, Elsewhere: true}}
	for _, n := range calls {
		r.Rounds = append(r.Rounds, bench.Pass{Calls: n, Elapsed: time.Second, CPU: time.Duration(n) * ns})
	}
	return r
}

func TestGoalsOfFleetModeAndOfServers(t *testing.T) {
	memory := func(name string, usage, used float64) bench.Result {
		return bench.Result{Contender: bench.Contender{Name: name}, Memory: &bench.Memory{Usage: usage, BytesPerKey: used}}
	}
	shared := func(workload string, share float64) bench.WorkloadReport {
		return in(workload, bench.Result{Contender: bench.Contender{Name: fleetbench.Leased}, Share: share}, bench.Result{Contender: bench.Contender{Name: fleetbench.Exact}, Share: 0.5})
	}
	late := func(r bench.Result, p99 time.Duration) bench.Result {
		r.Latency = &bench.Latency{P99: p99}
		r.LatencyRounds = []bench.Latency{*r.Latency}
		return r
	}
	d := run(
		in(fleetbench.Hot, measured(fleetbench.RedisRate, 9, 10, 20, 30), measured(fleetbench.Exact, 9, 20, 41, 63), measured(fleetbench.Leased, 30, 990, 2000, 2700),
			measured(fleetbench.EngineTake, 10, 1980, 4400, 5400), measured(fleetbench.EngineChoke, 10, 4000, 4000, 5400)),
		in(fleetbench.Refused, measured(fleetbench.RedisRate, 9, 10), measured(fleetbench.Exact, 9, 10)),
		in(fleetbench.MemoryInRedis, memory(fleetbench.RedisRate, 100, 150), memory(fleetbench.Exact, 80, 150)),
		shared("fleet-share-even-1000", 0.96), shared("fleet-share-skewed-1000", 0.89),
		in(servebench.TCP, measured(servebench.Rald, 115, 20, 60, 40), measured(servebench.GoFloor, 100, 25, 80, 40), measured(servebench.Script, 1, 40)),
		in(servebench.TCPPipeline, measured(servebench.Rald, 171, 60), measured(servebench.GoFloor, 100, 80), measured(servebench.Script, 1, 21)),
		in(servebench.Envoy, measured(servebench.Rald, 1, 60), measured(servebench.GRPCFloor, 1, 90), measured(servebench.Reference, 1, 10)),
		in(servebench.EnvoyRate, late(measured(servebench.Rald, 1, 19_600), 1300), late(measured(servebench.GRPCFloor, 1, 9), 1000)),
	)
	for i := range d.Workloads {
		d.Workloads[i].Summarize()
	}
	var figures []string
	for _, g := range Goals(d) {
		figures = append(figures, fmt.Sprintf("%s: %s, %s: %t", g.Workload, g.Text(), g.Bound(), g.IsReached()))
	}
	assert.Equal(t, []string{ // each round by itself
		"fleet-hot: Ral fleet exact, ops/s 2.05 of redis_rate's, at least 2.00: true",
		"fleet-hot: Ral fleet leased, ops/s 99.00 of redis_rate's, at least 100.00: false",
		"fleet-hot: Ral fleet leased, ops/s 0.50 of engine Take's, at least 0.50: true",
		"fleet-hot: Ral fleet leased, ops/s 0.50 of engine Choke's, at least 0.50: true",
		"fleet-hot: Ral fleet leased, ns/op 3.00 of engine Take's, at most 2.00: false",
		"fleet-memory: Ral fleet exact, USAGE 0.80 of redis_rate's, at most 0.99: true",
		"fleet-memory: Ral fleet exact, B/key 1.00 of redis_rate's, at most 0.99: false",
		"fleet-share-even-1000: Ral fleet leased, share 96.0%, at least 95.0%: true",
		"fleet-share-skewed-1000: Ral fleet leased, share 89.0%, at least 90.0%: false",
		"serve-tcp-16: rald, ops/s 2.86 of Redis, Lua GCRA's, at least 3.00: false",
		"serve-tcp-16: rald, ops/s 0.75 of Go, fixed answer's, at least 0.75: true",
		"serve-tcp-16: rald, ns/op 1.71 of Go, fixed answer's, at most 1.70: false",
		"serve-tcp: rald, ops/s 0.80 of Go, fixed answer's, at least 0.90: false",
		"serve-tcp: rald, ns/op 1.15 of Go, fixed answer's, at most 1.15: true",
		"serve-envoy: rald, ops/s 6.00 of envoyproxy/ratelimit's, at least 6.00: true",
		"serve-envoy-rate: rald, p99 1.30 of grpc-go, fixed answer's, at most 1.30: true",
		"serve-envoy-rate: rald, ops/s 19.6k, at least 19.6k: true",
	}, figures)
}

func TestMissingRoundsAreNotClaimed(t *testing.T) {
	made := func(planned, measured int) bench.WorkloadReport {
		w := bench.WorkloadReport{Workload: bench.Workload{Name: "uniform", Rounds: planned}, Results: []bench.Result{limiter("Ral", 1)}}
		w.Results[0].Rounds = make([]bench.Pass, measured)
		return w
	}
	text := func(w ...bench.WorkloadReport) string {
		d := run(w...)
		d.Settings.Rounds = 5
		return RoundsText(d)
	}
	assert.Equal(t, "medians of 5 rounds", text(made(5, 5), made(1, 1)), "growth has one by plan")
	assert.Equal(t, "medians of up to 5 rounds", text(made(5, 5), made(5, 1)))
	assert.Equal(t, "medians of 5 rounds", text(), "nothing was measured")
}

// Promise: ralbench states no comparison from fewer than three undisturbed rounds.
func TestFewRoundsAreNotJudged(t *testing.T) {
	for _, c := range []struct {
		rounds, disturbed int
		why               string
	}{
		{1, 0, "not judged: 1 round"},
		{2, 0, "not judged: 2 rounds"},
		{3, 0, ""},
		{4, 2, "not judged: 2 of 4 rounds undisturbed"},
		{5, 2, ""},
	} {
		mine := changed(limiter("Ral", 50), disturbed(c.disturbed, c.rounds))
		for _, figure := range []Column{costs, tails} {
			want, _, _ := figure.judged(limiter("Ral", 50), nil)
			s, why, ok := figure.judged(mine, nil)
			assert.True(t, ok)
			assert.Equal(t, c.why, why, "%+v", c)
			if why == "" {
				assert.Equal(t, want, s, "disturbed rounds took nine times as long")
			}
			_, why, _ = figure.judged(mine, &mine)
			assert.Equal(t, c.why, why, "%+v", c)
		}
	}
	calm, alsoCalm := limiter("Ral", 50), limiter("a", 100)
	alsoCalm.Rounds[1].Disturbed = true
	_, why, _ := costs.judged(calm, &alsoCalm)
	assert.Equal(t, "not judged: 2 of 3 rounds undisturbed", why, "a round needs both undisturbed")
	_, _, ok := tails.judged(bench.Result{Rounds: calm.Rounds}, nil)
	assert.False(t, ok, "nothing was timed")
	s, why, ok := bytesPerKey.judged(bench.Result{Memory: &bench.Memory{BytesPerKey: 75}}, nil)
	assert.True(t, ok && why == "" && s.Median == 75, "other load adds no bytes: one round says it")
}
