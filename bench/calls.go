package bench

import (
	"math"
	"time"
)

// The workloads of [Calls].
const (
	LimitsWorkload         = "limits"
	LimitsTakeWorkload     = "limits-take"
	LimitsAuditWorkload    = "limits-audit"
	VerbsWorkload          = "verbs"
	SeveralWorkload        = "several"
	SeveralRefusedWorkload = "several-refused"
	SetPolicyWorkload      = "setpolicy"
)

// callKeys is the number of keys of the workloads of calls. They stay in the cache, as a
// hot key does. A limit that counts no more than millions of units an hour for a key
// passes all calls of a run, because the keys share them.
const callKeys = 64

// roomy is the limit of the workloads of calls: no call is refused. Its period is the
// shortest that windows have, with the highest count that a fixed window has.
var roomy = Limit{Capacity: 1_000_000, Count: 1_000_000_000, Per: time.Second}

// Calls returns the workloads of Ral's other limits and verbs. In most of them, one
// caller asks for keys that are in the cache, so that the cost of the call itself is
// seen, and none of the memory's. Each is compared with Choke under a funnel. scale
// multiplies the number of changes of the limit.
func Calls(scale float64) []Workload {
	calls := Workload{Limit: roomy, Draw: DrawInTurn, Keys: callKeys, Callers: 1, Apart: true, Base: ralName}
	beside := func(name, about, why string) Workload {
		w := calls
		w.Name, w.About, w.Why = name, about, why
		return w
	}
	refused := beside(SeveralRefusedWorkload, "several limits on 64 hot keys, of which one refuses; one caller",
		"A client above one of its limits: nothing may be taken from the others.")
	refused.Limit, refused.Refused = Limit{Capacity: 1, Count: 1, Per: time.Hour}, 1
	return []Workload{
		beside(LimitsWorkload, "each kind of limit on 64 hot keys by Choke; one caller, every call passes",
			"The choice of a limit should not be one of speed."),
		beside(LimitsTakeWorkload, "the same by Take, beside a funnel's Choke; one caller, every call passes",
			"A server that tells its clients how much is left asks by Take."),
		{
			Name: LimitsAuditWorkload, About: "64 goroutines on one hot key, by each kind of limit: does it pass more than its promise?",
			Why:   "The race for one key, for limits that count in windows, or store what was not used.",
			Limit: tight, Keys: 1, Refused: 1, Callers: auditCallers, Rounds: 3, AuditOnly: true, Apart: true, Base: ralName,
		},
		beside(VerbsWorkload, "each verb on 64 hot keys under a funnel; one caller, every call passes",
			"What a server pays for waiting, for taking ahead and giving back, and for limits by key."),
		beside(SeveralWorkload, "two limits in one call on 64 hot keys; one caller, every call passes",
			"A limit for the second and one for the day, or one for a client and one for all: both or none."),
		refused,
		{
			Name: SetPolicyWorkload, About: "the limit is changed 200 times, while 8 callers ask for one key",
			Why:   "A limit that is changed under load: SetPolicy returns only when the new one holds.",
			Limit: loose, Draw: DrawOnce, Keys: max(int(math.Round(200*scale)), 1), Callers: 1, Rounds: 1, OneTimedPass: true, Apart: true, CallCost: 2 * time.Millisecond,
		},
	}
}

// Brief returns workloads with the ones of [Calls] cut short: three rounds of 40 ms, in
// which single calls are not timed.
func Brief(workloads []Workload) []Workload {
	const rounds, duration = 3, 40 * time.Millisecond
	brief := append([]Workload(nil), workloads...)
	for i := range brief {
		if w := &brief[i]; w.Apart && !w.OneTimedPass {
			w.Rounds, w.Duration, w.AuditOnly = rounds, duration, true
		}
	}
	return brief
}

// All returns the standard workloads and those of [Calls], the long ones last.
func All(scale float64) []Workload {
	var all, long []Workload
	for _, w := range append(Standard(scale), Calls(scale)...) {
		if w.OneTimedPass || w.Memory {
			long = append(long, w)
		} else {
			all = append(all, w)
		}
	}
	return append(all, long...)
}
