package linear

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

type Scenario struct {
	Name   string
	Policy policy.Policy
	// Step is the time by which the clock moves at once.
	Step     time.Duration
	Idle     time.Duration
	MaxKeys  int
	WhenFull engine.WhenFull
	// Queued has Choke decide on the word it reads, and another goroutine charge the key later.
	Queued bool
	// Waits reports whether the policy delays calls without patience.
	Waits bool
}

// Liberty names an answer that the key's word does not explain, and that Ral counts.
type Liberty int

const (
	Forgives Liberty = iota // forget a key that owes
	Refuses                 // refuse a new key that would have passed
	Passes                  // let a new key pass without a record
)

// InUse reports whether units are in use until they are given back.
func (s *Scenario) InUse() bool { return policy.MaxTimeInUse(s.Policy) > 0 }

// Liberty returns the liberty that this scenario allows. A key in use is never forgotten.
func (s *Scenario) Liberty() Liberty {
	if s.InUse() && s.WhenFull == engine.EvictLeastDebt {
		return Refuses
	}
	return Liberty(s.WhenFull)
}

func (s *Scenario) Taken(stats engine.Stats) uint64 {
	if s.Liberty() == Forgives {
		return stats.Forgiven
	}
	return stats.Full
}

// glanced drops a part of a refusal unknown to the model: when a call without patience could be
// made again while all others wait.
func (s *Scenario) glanced(decision policy.Decision) policy.Decision {
	if s.Waits {
		decision.RetryAfter = 0
	}
	return decision
}

// Scenarios returns each policy in a table with room for all keys, and in a small table by each
// WhenFull.
func Scenarios() []Scenario {
	policies := []struct {
		name  string
		p     policy.Policy
		step  time.Duration
		waits bool
	}{
		{"Funnel", policy.Must(policy.Funnel(5, 10, time.Second)), 93 * time.Millisecond, false},
		{"FixedWindow", policy.Must(policy.FixedWindow(7, 700*time.Millisecond)), 93 * time.Millisecond, false},
		{"SlidingWindow", policy.Must(policy.SlidingWindow(7, 700*time.Millisecond)), 93 * time.Millisecond, false},
		{"AtMost", policy.Must(policy.AtMost(7, 700*time.Millisecond)), 93 * time.Millisecond, false},
		{"Queue", policy.Must(policy.Queue(5, 10, time.Second)), 93 * time.Millisecond, true},
		{"Bursty", policy.Must(policy.Bursty(10, time.Second, 5)), 93 * time.Millisecond, false},
		{"InFlight", policy.Must(policy.InFlight(5, 704*time.Millisecond)), 93 * time.Millisecond, false},
	}
	tables := []struct {
		name string
		max  int
		when engine.WhenFull
	}{
		{"roomy", 1 << 14, engine.EvictLeastDebt},
		{"EvictLeastDebt", 20, engine.EvictLeastDebt},
		{"RefuseNew", 36, engine.RefuseNew},
		{"AdmitNew", 36, engine.AdmitNew},
	}
	var all []Scenario
	for _, p := range policies {
		for _, t := range tables {
			all = append(all, Scenario{
				Name: p.name + " " + t.name, Policy: p.p, Step: p.step, Waits: p.waits,
				Idle: time.Nanosecond, MaxKeys: t.max, WhenFull: t.when,
			})
		}
	}
	return all
}

func scenarioNamed(name string) (Scenario, error) {
	for _, scenario := range append(Scenarios(), Broken()) {
		if scenario.Name == name {
			return scenario, nil
		}
	}
	return Scenario{}, fmt.Errorf("there is no scenario %q", name)
}

// Broken is a scenario that is known not to be linearizable: it over-admits.
func Broken() Scenario {
	scenario := Scenarios()[0]
	scenario.Name, scenario.Queued = "Funnel Queued", true
	return scenario
}
