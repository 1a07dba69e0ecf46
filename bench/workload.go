package bench

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Draw says which key a caller asks next.
type Draw int

const (
	// Uniform: any key, with the same probability. Callers ask for a set time,
	// of a limiter that knows all the keys and lasts for all rounds.
	Uniform Draw = iota
	// Zipf: the key of rank r with a probability of about 1/r. Otherwise as
	// Uniform.
	Zipf
	// Once: each key once in all, so that all are new. The callers share them
	// out, and each pass has a limiter of its own.
	Once
	// Together: every caller asks all keys in the same order, so that they meet
	// at each new key. Each pass has a limiter of its own.
	Together
)

// String returns the name of the way to draw.
func (d Draw) String() string {
	names := [...]string{"uniform", "zipf", "once", "together"}
	if d < 0 || int(d) >= len(names) {
		return fmt.Sprintf("unknown (%d)", int(d))
	}
	return names[d]
}

// lasting tells whether a limiter is kept from round to round.
func (d Draw) lasting() bool { return d == Uniform || d == Zipf }

// Workload is something for limiters to do.
type Workload struct {
	Name  string
	About string // one line
	// Limit holds for each key. The zero Limit is replaced by one that refuses
	// about the share Refused of the calls at the speed that is measured here;
	// not for Once and Together.
	Limit Limit
	Draw  Draw
	Keys  int // how many different keys
	// MaxKeys is how many of them the limiter may keep; 0 means all.
	MaxKeys int
	// Refused is the share of the calls that the limit is meant to refuse. The
	// floor goes by it, and a zero Limit.
	Refused float64
	// Callers is how many goroutines ask at once; 0 means Options.Callers.
	Callers int
	// Rounds is how many rounds there are; 0 means Options.Rounds.
	Rounds int
	// OneTimedPass measures throughput and latencies in the same pass, for a
	// workload too long for two. Not for lasting limiters.
	OneTimedPass bool
	// AuditOnly leaves the latencies of single calls unmeasured.
	AuditOnly bool
	// Memory measures what the keys hold, what a garbage collection then costs,
	// and what is left of it when they have not been asked for Idle, in a limiter
	// that is made with that idle time. Only for Once.
	Memory bool
	Idle   time.Duration
	// Known is how many further keys, known from the beginning, are asked while
	// the latencies of the others are measured. Only for Once.
	Known int
}

// keyCalls returns how many calls it takes to ask for all keys as the workload
// does.
func (w Workload) keyCalls() int {
	if w.Draw == Together {
		return w.Keys * max(w.Callers, 1)
	}
	return w.Keys + w.Known
}

// AllPass tells whether no call is meant to be refused, for a contender that
// makes callers wait instead.
func (w Workload) AllPass() bool { return w.Refused == 0 && w.Limit.Capacity >= loose.Capacity }

// The limits of the standard workloads. A loose one is never reached; a tight
// one is passed within microseconds.
var (
	loose = Limit{Capacity: 1 << 40, Count: 1_000_000, Per: time.Second}
	tight = Limit{Capacity: 1000, Count: 1000, Per: time.Second}
)

// auditors is how many goroutines try to get more than the limit at once.
const auditors = 64

// leastIdle is the idle time of a scaled-down workload at the least.
const leastIdle = 50 * time.Millisecond

// Standard returns the standard workloads. scale multiplies how many keys those
// with many keys have: 1 is what their descriptions say, less is for a quick
// look.
func Standard(scale float64) []Workload {
	keys := func(n int) int { return max(int(math.Round(float64(n)*scale)), 1) }
	return []Workload{{
		Name: "hot-pass", About: "one hot key, every call passes",
		Limit: loose, Keys: 1,
	}, {
		Name: "hot-refused", About: "one hot key, almost every call is refused",
		Limit: tight, Keys: 1, Refused: 1,
	}, {
		Name: "uniform", About: "100,000 known keys, evenly; every call passes",
		Limit: loose, Keys: keys(100_000),
	}, {
		Name: "zipf", About: "1,000,000 known keys by Zipf's law; about half of the calls are refused",
		Draw: Zipf, Keys: keys(1_000_000), Refused: 0.5,
	}, {
		Name: "flood", About: "250,000 brand-new keys, each asked once; the table has room",
		Limit: tight, Draw: Once, Keys: keys(250_000),
	}, {
		Name: "flood-full", About: "250,000 brand-new keys, each asked once; the table holds 25,000",
		Limit: tight, Draw: Once, Keys: keys(250_000), MaxKeys: keys(25_000),
	}, {
		Name: "growth", About: "from empty to 4,000,000 keys; known keys are asked meanwhile",
		Limit: loose, Draw: Once, Keys: keys(4_000_000), Known: 64, Rounds: 1, OneTimedPass: true,
	}, {
		Name: "memory", About: "1,000,000 keys: their bytes, the garbage collector's cost, what is left when idle",
		Limit: tight, Draw: Once, Keys: keys(1_000_000), Rounds: 1, AuditOnly: true,
		Memory: true, Idle: max(time.Duration(scale*float64(time.Second)), leastIdle),
	}, {
		Name: "audit-hot", About: "64 goroutines on one hot key: does it pass more than the limit?",
		Limit: tight, Keys: 1, Refused: 1, Callers: auditors, Rounds: 3, AuditOnly: true,
	}, {
		Name: "audit-new", About: "64 goroutines meet at 10,000 brand-new keys, of which each may pass once",
		Limit: Limit{Capacity: 1, Count: 1, Per: time.Hour}, Draw: Together,
		Keys: keys(10_000), Callers: auditors, Rounds: 3, AuditOnly: true,
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

// Select returns the workloads of these names, in the order of all. The error
// names an unknown name and those that are known.
func Select(all []Workload, names []string) ([]Workload, error) {
	wanted := make(map[string]bool)
	for _, name := range names {
		wanted[name] = true
	}
	var selected []Workload
	for _, w := range all {
		if wanted[w.Name] {
			selected = append(selected, w)
			delete(wanted, w.Name)
		}
	}
	for _, name := range names {
		if wanted[name] {
			return nil, fmt.Errorf("unknown workload %q; known are %s", name, strings.Join(Names(all), ", "))
		}
	}
	return selected, nil
}
