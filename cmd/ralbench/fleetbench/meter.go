package fleetbench

import (
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
)

// Work is Redis's work for a contender in a workload.
type Work struct {
	Workload  string `json:"workload"`
	CPU       int    `json:"cpu"` // GOMAXPROCS
	Contender string `json:"contender"`
	// RedisNsPerOp is the processor time that Redis spent by call, over the rounds.
	RedisNsPerOp bench.Spread `json:"redis_ns_per_op"`
	Rounds       []float64    `json:"rounds"`
	// The numbers of calls answered by Redis, on a lease, and by neither; 0 if not counted.
	ByRedis uint64 `json:"by_redis,omitempty"`
	ByLease uint64 `json:"by_lease,omitempty"`
	Neither uint64 `json:"neither,omitempty"`
}

type task struct {
	workload  string
	cpu       int
	contender string
}

type meter struct {
	read   func() (time.Duration, error)
	fail   error
	at     task // of the current step
	before time.Duration
	opened map[task]bool
	rounds map[task][]time.Duration
	ways   map[string]fleet.Stats // by contender, of the current workload
	work   []Work
}

func newMeter(read func() (time.Duration, error)) *meter {
	return &meter{read: read, opened: map[task]bool{}, rounds: map[task][]time.Duration{}, ways: map[string]fleet.Stats{}}
}

// step ends a step and begins the next. A contender's first step in a workload opens its keys; each
// later step is a round.
func (m *meter) step(p bench.Progress) {
	now, err := m.read()
	if err != nil {
		m.fail = err
	}
	if m.at.contender != "" {
		if m.opened[m.at] {
			m.rounds[m.at] = append(m.rounds[m.at], now-m.before)
		}
		m.opened[m.at] = true
	}
	m.at, m.before = task{p.Workload, p.CPU, p.Contender}, now
}

// finished is called when the limiters of a workload are closed, before step ends its last step.
func (m *meter) finished(w bench.WorkloadReport) {
	for _, r := range w.Results {
		if !r.Elsewhere {
			continue
		}
		s := m.ways[r.Contender]
		m.work = append(m.work, Work{
			Workload: w.Name, CPU: w.CPU, Contender: r.Contender,
			ByRedis: s.Exact, ByLease: s.Leased, Neither: s.Local + s.Open + s.Closed,
		})
	}
}

func (m *meter) result(report bench.Report) []Work {
	calls := map[task][]int64{}
	for _, w := range report.Workloads {
		for _, r := range w.Results {
			for i, p := range r.Rounds {
				n := p.Calls
				if i < len(r.LatencyRounds) {
					n += r.LatencyRounds[i].Calls
				}
				calls[task{w.Name, w.CPU, r.Contender}] = append(calls[task{w.Name, w.CPU, r.Contender}], n)
			}
		}
	}
	for i := range m.work {
		w := &m.work[i]
		t := task{w.Workload, w.CPU, w.Contender}
		// An interrupted run has spent time on a round that is not kept.
		for j := range min(len(m.rounds[t]), len(calls[t])) {
			w.Rounds = append(w.Rounds, float64(m.rounds[t][j])/float64(max(calls[t][j], 1)))
		}
		w.RedisNsPerOp = bench.SpreadOf(w.Rounds)
	}
	return m.work
}
