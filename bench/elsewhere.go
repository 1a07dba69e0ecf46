package bench

import "fmt"

// elsewhere schedules a workload whose contenders measure themselves.
type elsewhere struct{ base }

func (e *elsewhere) steps() (steps []step) {
	for round := range e.Workload.Rounds {
		for _, i := range Order(round, len(e.turns)) {
			t := e.turns[i]
			steps = append(steps, step{
				contender: t.Name, doing: fmt.Sprintf("round %d of %d", round+1, e.Workload.Rounds),
				cost: e.o.Duration, round: round,
				do: undisturbed(func() error { return e.round(t) }),
			})
		}
	}
	return steps
}

// round keeps a contender's round, unless the run was ended meanwhile.
func (e *elsewhere) round(t *turn) error {
	m, err := t.Measure(e.ctx, e.Workload, e.o.Duration)
	switch {
	case e.ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	t.rounds = append(t.rounds, m.Pass)
	t.memory, t.share = m.Memory, m.Share
	if m.Latency != (Latency{}) {
		t.recorders.rounds = append(t.recorders.rounds, m.Latency)
	}
	if m.Audit != nil {
		t.audit = *m.Audit
	}
	return nil
}

func (e *elsewhere) finish() (WorkloadReport, error) { return e.report(), nil }
