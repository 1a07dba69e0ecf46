package fleetbench

import (
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
)

// Work is what bench does not measure of one contender in one workload.
type Work struct {
	Workload  string `json:"workload"`
	CPU       int    `json:"cpu"` // GOMAXPROCS
	Contender string `json:"contender"`
	// RedisNsPerOp is the processor time that Redis spent by call, over the rounds.
	RedisNsPerOp bench.Spread `json:"redis_ns_per_op"`
	Rounds       []float64    `json:"rounds"`
	// The numbers of calls answered by Redis, on a lease, and by neither. They are 0 for
	// contenders that do not count them.
	ByRedis uint64 `json:"by_redis,omitempty"`
	ByLease uint64 `json:"by_lease,omitempty"`
	Neither uint64 `json:"neither,omitempty"`
}

// task is a contender in a workload.
type task struct {
	workload  string
	cpu       int
	contender string
}

// meter attributes Redis's processor time to the steps of a run of bench.
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

// step ends the current step and begins the next. The first step of each contender in a
// workload opens its keys; each later one is a round.
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

// finished is called for each workload when its limiters are closed. The call of step
// that ends the last step of the workload comes afterwards.
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

// result returns the work of a run that is over.
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
