package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Draw is the order of the keys that callers ask for. The zero value is DrawUniform.
type Draw string

const (
	// DrawUniform draws keys with equal probability. One limiter, which knows all keys, is kept for
	// all rounds and asked for a set time.
	DrawUniform Draw = "uniform"
	// DrawZipf is DrawUniform with a probability of about 1/r for the key of rank r.
	DrawZipf Draw = "zipf"
	// DrawOnce asks once for each new key, shared out to the callers. Each pass has its own
	// limiter.
	DrawOnce Draw = "once"
	// DrawSameOrder makes every caller ask for all keys in the same order, to meet at each new key.
	// Each pass has its own limiter.
	DrawSameOrder Draw = "same order"
	// DrawInTurn is DrawUniform with all keys in order, repeatedly.
	DrawInTurn Draw = "in turn"
	// DrawElsewhere has each contender measure its rounds by Contender.Measure, each at most once if
	// there are several values of GOMAXPROCS. No budget cuts these rounds.
	DrawElsewhere Draw = "elsewhere"
)

// KeepsLimiter reports whether one limiter, which knows all keys, is kept for all rounds.
func (d Draw) KeepsLimiter() bool {
	return d != DrawOnce && d != DrawSameOrder && d != DrawElsewhere
}

// Workload says which keys are asked for, how often and under which limit. Reports have the fields
// with a name in JSON.
type Workload struct {
	Name string `json:"name"`
	// About describes the calls in one line.
	About string `json:"about"`
	// Why is the meaning of the workload for a server, in one sentence.
	Why string `json:"why"`
	// Limit holds for each key.
	Limit Limit `json:"limit"`
	Draw  Draw  `json:"draw"`
	// Keys is the number of different keys.
	Keys int `json:"keys"`
	// MaxKeys is the number of keys that the limiter may keep; 0 means all.
	MaxKeys int `json:"max_keys"`
	// Refused is the share of calls to refuse, for the yardsticks.
	Refused float64 `json:"-"`
	// Callers is the number of goroutines that ask; 0 means Options.Callers.
	Callers int `json:"callers"`
	// Rounds is the number of rounds; 0 means Options.Rounds.
	Rounds int `json:"rounds"`
	// OneTimedPass measures throughput and latencies together. It needs DrawOnce or DrawSameOrder.
	OneTimedPass bool `json:"timed"`
	// AuditOnly leaves the latencies of single calls unmeasured.
	AuditOnly bool `json:"-"`
	// Memory measures the heap of the keys and a garbage collection with it, and, on another
	// limiter, the heap after the keys were idle for Idle. It needs DrawOnce.
	Memory bool          `json:"-"`
	Idle   time.Duration `json:"-"`
	// Apart marks a workload of different calls or kinds of limits. Only contenders made for it
	// take part, and none is called the best.
	Apart bool `json:"-"`
	// Base is the contender whose call the others' are compared with, by round; empty means none.
	Base string `json:"base,omitempty"`
	// Duration is the time to ask a contender in each round; 0 means Options.Duration.
	Duration time.Duration `json:"-"`
	// CallCost is the estimated time of a call of milliseconds; 0 means the cost of opening a key.
	CallCost time.Duration `json:"-"`
	// Known is the number of further keys, known from the beginning and asked for while the
	// latencies of the others are measured. It needs DrawOnce.
	Known int `json:"-"`
}

// keyCalls returns the number of calls that ask for all keys.
func (w Workload) keyCalls() int {
	if w.Draw == DrawSameOrder {
		return w.Keys * max(w.Callers, 1)
	}
	return w.Keys + w.Known
}

// isLong reports whether a round is a lot of work.
func (w Workload) isLong() bool { return w.OneTimedPass || w.Memory }

// AllPass reports whether no call is to be refused, for contenders that delay calls instead.
func (w Workload) AllPass() bool { return w.Refused == 0 && w.Limit.Capacity >= Loose.Capacity }

// The Loose limit is never reached, the Tight limit within microseconds.
var (
	Loose = Limit{Capacity: 1 << 40, Count: 1_000_000, Per: time.Second}
	Tight = Limit{Capacity: 1000, Count: 1000, Per: time.Second}
)

// halving refuses about half of the calls by Zipf's law for a million keys and two callers: 48% of 2.5 million calls a second
// of a caller, and 60% of 15 million. The share falls with the logarithm of the units that there are.
var halving = Limit{Capacity: 9, Count: 300, Per: time.Second}

const auditCallers = 64

const (
	// The rounds of GrowthWorkload take longest.
	GrowthWorkload     = "growth"
	MemoryHalfWorkload = "memory-half"
)

const minIdle = 50 * time.Millisecond

// Standard returns the standard workloads, the long last. scale multiplies their numbers of
// keys, if many: 1 is as described, less gives a quick look.
func Standard(scale float64) []Workload {
	keys := func(n int) int { return max(int(math.Round(float64(n)*scale)), 1) }
	return []Workload{{
		Name: "hot-pass", About: "one hot key, built anew; every call passes",
		Why:   "A busy client under its limit: all callers meet at the state of one key.",
		Limit: Loose, Keys: 1,
	}, {
		Name: "hot-refused", About: "one hot key, built anew; almost every call is refused",
		Why:   "A client far above its limit: refusing it should cost less than serving it.",
		Limit: Tight, Keys: 1, Refused: 1,
	}, {
		Name: "uniform", About: "100,000 known keys, evenly, built anew; every call passes",
		Why:   "Many clients under their limits: the state of each key has to come from memory.",
		Limit: Loose, Keys: keys(100_000),
	}, {
		Name: "million", About: "1,000,000 known keys, evenly, built anew; every call passes",
		Why:   "More clients than any cache can hold: each call waits for memory, and for the tables of its pages.",
		Limit: Loose, Keys: keys(1_000_000),
	}, {
		Name: "zipf", About: "1,000,000 known keys by Zipf's law, built anew; about half of the calls are refused",
		Why:   "Traffic as it is on the web: few keys get most of the calls, and those are above their limits.",
		Limit: halving, Draw: DrawZipf, Keys: keys(1_000_000), Refused: 0.5,
	}, {
		Name: "flood", About: "250,000 brand-new keys, each asked once; the table has room",
		Why:   "An attack with invented keys: the cost of a key that was never seen before.",
		Limit: Tight, Draw: DrawOnce, Keys: keys(250_000),
	}, {
		Name: "flood-full", About: "250,000 brand-new keys, each asked once; the table holds 25,000",
		Why:   "The same attack on a full table: each new key displaces another one. Only limiters with a bounded table take part.",
		Limit: Tight, Draw: DrawOnce, Keys: keys(250_000), MaxKeys: keys(25_000),
	}, {
		Name: "audit-hot", About: "64 goroutines on one hot key: does it pass more than its promise?",
		Why:   "The race for one key: a limiter that loses an update admits too many here.",
		Limit: Tight, Keys: 1, Refused: 1, Callers: auditCallers, Rounds: 3, AuditOnly: true,
	}, {
		Name: "audit-new", About: "64 goroutines meet at 10,000 brand-new keys, of which each may pass once",
		Why:   "The race for a new key: a limiter that makes its state twice admits too many here.",
		Limit: Limit{Capacity: 1, Count: 1, Per: time.Hour}, Draw: DrawSameOrder,
		Keys: keys(10_000), Callers: auditCallers, Rounds: 3, AuditOnly: true,
	}, {
		Name: GrowthWorkload, About: "from empty to 4,000,000 keys; known keys are asked meanwhile",
		Why:   "A server that starts with an empty table: the longest calls while the table grows.",
		Limit: Loose, Draw: DrawOnce, Keys: keys(4_000_000), Known: 64, Rounds: 3, OneTimedPass: true,
	}, {
		Name: MemoryHalfWorkload, About: "1,000,000 keys in a table for 2,000,000: their bytes",
		Why:   "A table is made for more keys than there are, which costs bytes that no key uses.",
		Limit: Tight, Draw: DrawOnce, Keys: keys(1_000_000), MaxKeys: keys(2_000_000), Rounds: 1, AuditOnly: true,
		Memory: true, Idle: minIdle,
	}, {
		Name: "memory", About: "1,000,000 keys: their bytes, the garbage collector's cost, what is left when idle",
		Why:   "The heap that a million clients hold, and whether it is given back once they are gone.",
		Limit: Tight, Draw: DrawOnce, Keys: keys(1_000_000), Rounds: 1, AuditOnly: true,
		Memory: true, Idle: max(time.Duration(scale*float64(time.Second)), minIdle),
	}}
}

// Names returns the workloads' names.
func Names(workloads []Workload) []string {
	names := make([]string, len(workloads))
	for i, w := range workloads {
		names[i] = w.Name
	}
	return names
}

// Select returns the workloads of these names, in the order of all. Errors list the known names.
func Select(all []Workload, names []string) ([]Workload, error) {
	for _, name := range names {
		if !slices.Contains(Names(all), name) {
			return nil, fmt.Errorf("unknown workload %q; known are %s", name, strings.Join(Names(all), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(w Workload) bool { return !slices.Contains(names, w.Name) }), nil
}
