package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

const (
	LimitsWorkload         = "limits"
	LimitsTakeWorkload     = "limits-take"
	LimitsAuditWorkload    = "limits-audit"
	VerbsWorkload          = "verbs"
	SeveralWorkload        = "several"
	SeveralRefusedWorkload = "several-refused"
	InFlightWorkload       = "inflight"
	InFlightKeysWorkload   = "inflight-keys"
	SetPolicyWorkload      = "setpolicy"
)

// callKeys is the number of keys, few enough to stay in the cache like a hot key. They share the
// calls of a run, so that limits up to millions of units an hour pass them all.
const callKeys = 64

// roomy is the limit under which no call is refused: the shortest period of windows, with the
// highest count of a fixed window.
var roomy = Limit{Capacity: 1_000_000, Count: 1_000_000_000, Per: time.Second}

// Calls returns the workloads of Ral's other limits and verbs, each compared with Choke under a
// funnel. Most have one caller and keys in the cache, to show the cost of the call without
// memory. scale multiplies the number of changes of the limit and of keys, if many.
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
	many := beside(InFlightKeysWorkload, "a slot is taken and released among 100,000 keys, evenly, built anew; one caller, every call passes",
		"Many clients with few calls at once each: the state of each key has to come from memory.")
	many.Draw, many.Keys = DrawUniform, max(int(math.Round(100_000*scale)), 1)
	return []Workload{
		beside(LimitsWorkload, "each kind of limit on 64 hot keys by Choke; one caller, every call passes",
			"The choice of a limit should not be one of speed."),
		beside(LimitsTakeWorkload, "the same by Take, beside a funnel's Choke; one caller, every call passes",
			"A server that tells its clients how much is left asks by Take."),
		{
			Name: LimitsAuditWorkload, About: "64 goroutines on one hot key, by each kind of limit: does it pass more than its promise?",
			Why:   "The race for one key, for limits that count in windows, or store what was not used.",
			Limit: Tight, Keys: 1, Refused: 1, Callers: auditCallers, Rounds: 3, AuditOnly: true, Apart: true, Base: ralName,
		},
		beside(VerbsWorkload, "each verb on 64 hot keys under a funnel; one caller, every call passes",
			"What a server pays for waiting, for taking ahead and giving back, and for limits by key."),
		beside(SeveralWorkload, "two limits in one call on 64 hot keys; one caller, every call passes",
			"A limit for the second and one for the day, or one for a client and one for all: both or none."),
		refused,
		beside(InFlightWorkload, "a slot is taken and released on 64 hot keys; one caller, every call passes",
			"How many calls of a client run at once: each call takes a slot, and releases it when it is over."),
		many,
		beside(HTTPWorkload, "a handler under limits on 64 hot keys; one caller, every request passes",
			"A second limit shares most steps with the first, and should cost less."),
		{
			Name: SetPolicyWorkload, About: "the limit is changed 200 times, while 8 callers ask for one key",
			Why:   "A limit that is changed under load: SetPolicy returns only when the new one holds.",
			Limit: Loose, Draw: DrawOnce, Keys: max(int(math.Round(200*scale)), 1), Callers: 1, Rounds: 3, OneTimedPass: true, Apart: true, CallCost: 2 * time.Millisecond,
		},
	}
}

// Brief returns the workloads, [Calls] cut to five rounds of 40 ms without latencies, and idle times
// to a quarter of a second.
func Brief(workloads []Workload) []Workload {
	const rounds, duration, idle = 5, 40 * time.Millisecond, 250 * time.Millisecond
	brief := slices.Clone(workloads)
	for i := range brief {
		w := &brief[i]
		if w.Idle = min(w.Idle, idle); w.Apart && !w.OneTimedPass {
			w.Rounds, w.Duration, w.AuditOnly = rounds, duration, true
		}
	}
	return brief
}

// All returns the workloads of Standard and of Calls, the long last.
func All(scale float64) []Workload {
	all := append(Standard(scale), Calls(scale)...)
	short := func(w Workload) bool { return !w.isLong() }
	return append(slices.DeleteFunc(slices.Clone(all), Workload.isLong), slices.DeleteFunc(all, short)...)
}

// RalCalls returns Ral's other limits and verbs as contenders for [Calls]. The first, named as Ral
// is elsewhere, is Choke under a funnel.
func RalCalls() []Contender {
	all := []Contender{ralCall("", "Choke under a funnel", onEngine(funnel, choke, nil), LimitsWorkload, LimitsTakeWorkload, LimitsAuditWorkload,
		VerbsWorkload, SeveralWorkload, SeveralRefusedWorkload, InFlightWorkload, InFlightKeysWorkload, HTTPWorkload)}
	for _, k := range limitKinds {
		by := func(name string, ask verb, workloads ...string) {
			contender := ralCall(k.name, name+k.about, onEngine(k.limit, ask, nil), workloads...)
			contender.Promise, contender.Note = k.promise, k.note
			all = append(all, contender)
		}
		if k.name != "Take" {
			by("Choke under ", choke, LimitsWorkload, LimitsAuditWorkload)
		}
		by("Take under ", take, LimitsTakeWorkload)
	}
	for _, v := range verbs {
		all = append(all, ralCall(v.name, v.about, onEngine(funnel, v.ask, v.prepare), VerbsWorkload))
	}
	all = append(all, ralCall("PolicyFor", "Choke with one of three funnels by key", onEngine(funnel, choke, nil, engine.PolicyFor(oneOfThree)), VerbsWorkload))
	for _, m := range severalLimits {
		all = append(all, ralCall(m.name, m.about, m.new, SeveralWorkload, SeveralRefusedWorkload))
	}
	all = append(all, ralCall("Release", "Reserve and Release under policy.InFlight", onEngine(inFlight, release, nil),
		InFlightWorkload, InFlightKeysWorkload))
	change := ralCall("SetPolicy", "SetPolicy, while 8 goroutines call Choke", newSetPolicy, SetPolicyWorkload)
	change.Note = "ns/op has the other callers in it; p50 to worst are single changes"
	return append(append(all, ralHTTP()...), change)
}

// limitKinds are the policies. The first is the funnel's Take; its Choke is the base. Some kinds have
// no limit as high as roomy, and a cold unit of a warming up costs 750 ns.
var limitKinds = []struct {
	name, about string
	limit       policyOf
	promise     Promise
	note        string
}{
	{"Take", "a funnel", funnel, LeakyBucket, ""},
	{"AtMost", "policy.AtMost", parsed("at most 4194303/h", "at most 1000/s"), SlidingWindow,
		"counts whole parts of its window, and refuses a part of what a log of all calls would admit"},
	{"Bursty", "policy.Bursty", parsed("bursty 1000000000/s, 999999", "bursty 1000/s, 999"), TokenBucket, "starts with an empty store, as Guava's does"},
	{"FixedWindow", "policy.FixedWindow", parsed("window 1M/ms", "window 1000/s"), FixedWindow, "admits up to two bursts around the end of a window, by design"},
	{"Queue", "policy.Queue", parsed("queue 999999, 1000000000/s", "queue 999, 1000/s"), LeakyBucket, "admits to a queue; its callers are told how long to wait"},
	{"SlidingWindow", "policy.SlidingWindow", parsed("sliding 8388607/h", "sliding 1000/s"), TokenBucket,
		"estimates a sliding window from two fixed ones, and promises no more than a bucket"},
	{"WarmingUp", "policy.WarmingUp", parsed("warming up 4M/s over 3750ns, cold 3", "warming up 1000/s over 1s, cold 3"), TokenBucket,
		"stores no burst: idle keys are slower at first, as Guava's are"},
}

// parsed returns one policy for the roomy limit, and another for the tight limit.
func parsed(atRoomy, atTight string) policyOf {
	return func(limit Limit) (policy.Policy, error) {
		if limit == roomy {
			return policy.Parse(atRoomy)
		}
		return policy.Parse(atTight)
	}
}

// verbs are the calls beside Choke. A call that needs known keys has a function to prepare them.
var verbs = []struct {
	name, about  string
	ask, prepare verb
}{
	{"Peek", "Peek", func(limiter *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool { return limiter.Peek(key, 0).Allowed })
	}, choke},
	{"Reserve", "Reserve and Cancel", func(limiter *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool {
			reservation := limiter.Reserve(key, 1, 0)
			reservation.Cancel()
			return reservation.Allowed
		})
	}, nil},
	{"Acquire", "Acquire that need not wait, and Cancel", func(limiter *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool {
			reservation, err := limiter.Acquire(context.Background(), key, 1, 0)
			reservation.Cancel()
			return err == nil
		})
	}, nil},
	{"Refund", "Refund to a key that owes", func(limiter *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool { limiter.Refund(key, 1); return true })
	}, func(limiter *engine.Engine[string], keys []string) int {
		const owed = 86_400 * 1_000_000_000
		for _, key := range keys {
			limiter.Choke(key)
			limiter.Refund(key, -owed)
		}
		return 0
	}},
	{"Wait", "Wait that need not wait", func(limiter *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool { return limiter.Wait(context.Background(), key, 1) == nil })
	}, nil},
	{"TakeWith", "TakeWith another funnel", func(limiter *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool { return limiter.TakeWith(otherFunnel, key, 1).Allowed })
	}, nil},
}

var otherFunnel = policy.Must(policy.Funnel(roomy.Capacity/2, roomy.Count, roomy.Per))

// release reserves a unit and releases the reservation.
func release(limiter *engine.Engine[string], keys []string) int {
	return AskEach(keys, func(key string) bool {
		reservation := limiter.Reserve(key, 1, 0)
		reservation.Release()
		return reservation.Allowed
	})
}

// inFlight is a limit of slots that no workload uses up.
var inFlight = parsed("in flight 100, 1m at most", "in flight 100, 1m at most")

// oneOfThree returns one of three funnels by the key's last letter.
func oneOfThree(key string) policy.Policy { return threeFunnels[key[len(key)-1]%3] }

var threeFunnels = [3]policy.Policy{funnelBelow(0), funnelBelow(1), funnelBelow(2)}

// funnelBelow returns the roomy limit as a funnel, with a capacity that is n units less.
func funnelBelow(n int64) policy.Policy {
	return policy.Must(policy.Funnel(roomy.Capacity-n, roomy.Count, roomy.Per))
}

// severalLimits are the calls under two limits: the workload's own, and roomy.
var severalLimits = []struct {
	name, about string
	new         func(Setup) (Limiter, error)
}{
	{"Tiered", "Choke of a Tiered of two funnels", func(setup Setup) (Limiter, error) {
		t, err := engine.NewTiered[string](engine.Config{Policy: policy.Must(funnel(roomy)), MaxKeys: setup.MaxKeys}, policy.Must(funnel(setup.Limit)))
		if err != nil {
			return Limiter{}, err
		}
		return counted(t.Engines()[0], t.Close, func(keys []string) int {
			return AskEach(keys, func(key string) bool { return t.Choke(key) })
		}), nil
	}},
	{"TakeAll", "TakeAll of two claims: one of the key, one that all keys share", newClaims(func(own, shared *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool { return engine.TakeAll(own.Claim(key, 1), shared.Claim(sharedKey, 1)).Allowed })
	})},
	{"AcquireAll", "AcquireAll of the same, without patience", newClaims(func(own, shared *engine.Engine[string], keys []string) int {
		return AskEach(keys, func(key string) bool {
			_, err := engine.AcquireAll(context.Background(), 0, own.Claim(key, 1), shared.Claim(sharedKey, 1))
			return err == nil
		})
	})},
}

const sharedKey = "all"

// newClaims makes calls on two engines, under the workload's limit and roomy.
func newClaims(ask func(own, shared *engine.Engine[string], keys []string) int) func(Setup) (Limiter, error) {
	return func(setup Setup) (Limiter, error) {
		own, err := newEngine(setup, funnel)
		if err != nil {
			return Limiter{}, err
		}
		shared, err := newEngine(Setup{Limit: roomy}, funnel)
		if err != nil {
			return Limiter{}, errors.Join(err, own.Close())
		}
		free := func() error { return errors.Join(own.Close(), shared.Close()) }
		return counted(own, free, func(keys []string) int { return ask(own, shared, keys) }), nil
	}
}

// newSetPolicy alternates an engine's limit, by a single caller at a time. A key passes if the limit
// was changed.
func newSetPolicy(setup Setup) (Limiter, error) {
	limiter, err := newEngine(setup, funnel)
	if err != nil {
		return Limiter{}, err
	}
	var two [2]policy.Policy
	for i := range two {
		two[i] = policy.Must(policy.Funnel(setup.Limit.Capacity/int64(i+2), setup.Limit.Count, setup.Limit.Per))
	}
	var callers sync.WaitGroup
	var stop atomic.Bool
	const busy = 8
	for range busy {
		callers.Go(func() {
			for !stop.Load() {
				for range batch {
					limiter.Choke(sharedKey)
				}
			}
		})
	}
	next := 0
	return Limiter{
		Ask: func(keys []string) int {
			return AskEach(keys, func(string) bool {
				next = 1 - next
				return limiter.SetPolicy(two[next]) == nil
			})
		},
		Free: func() error {
			stop.Store(true)
			callers.Wait()
			return limiter.Close()
		},
	}, nil
}
