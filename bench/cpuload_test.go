package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const someStat = `cpu  999 0 999 999 999 0 0 999 0 0
cpu0 100 1 20 5000 300 2 3 4 50 50
cpu1 10 0 0 5000 0 0 0 0 0 0
cpu2 7000 0 0 0 0 0 0 0 0 0
intr 1 2 3 4 5 6 7 8 9
`

func TestBusyTimeIsOfTheProcessorsThatTheProcessMayUse(t *testing.T) {
	// Neither idling nor waiting for a disk is busy; stolen time is.
	for _, c := range []struct {
		stat, status string
		busy         time.Duration
		processors   int
	}{
		{someStat, "Name:\tx\nCpus_allowed_list:\t0-1\nMems_allowed:\t1\n", (130 + 10) * tick, 2},
		{someStat, "Name:\tx\nCpus_allowed_list:\t1,2\n", 7010 * tick, 2},
		// All processors count if the status does not say which.
		{someStat, "", 7140 * tick, 3},
		{"", "", 0, 0},
		{"cpu0 1 2\n", "", 0, 0},
		{"cpu0 a b c d e f g h\n", "", 0, 0},
	} {
		busy, processors, known := parseBusy(c.stat, c.status)
		assert.Equal(t, c.processors > 0, known, c)
		if known {
			assert.Equal(t, c.busy, busy, c)
			assert.Equal(t, c.processors, processors, c)
		}
	}
}

func TestOnlyLoadThatTakesAProcessorAwayDisturbs(t *testing.T) {
	const second = time.Second
	assert.Zero(t, lostTime(2*second, second, 2, 4), "the other two were free for it")
	assert.Equal(t, second, lostTime(3*second, second, 2, 4))
	assert.Equal(t, second, lostTime(second, second, 4, 2), "more wanted than there are")

	assert.False(t, isDisturbed(90*ms, second, 2), "less than a twentieth")
	assert.True(t, isDisturbed(110*ms, second, 2))
	assert.False(t, isDisturbed(2*tick, 10*ms, 1), "a tick or two are too coarse")
	assert.True(t, isDisturbed(4*tick, 10*ms, 1))
}

// busyMachine disturbs the first passes. Each pass looks twice.
func busyMachine(disturbed int64) busyTime {
	var looks atomic.Int64
	return func() (time.Duration, int, bool) {
		// The first look is of the run itself.
		n := looks.Add(1) - 1
		return time.Hour * time.Duration(min(n/2, disturbed)), 1, true
	}
}

// Promise: A pass that other load disturbs is told, and judges nothing.
func TestDisturbedPassesAreTold(t *testing.T) {
	o := quick()
	o.Rounds, o.NewRecorder = 8, nil
	flood := Workload{Name: "flood", Limit: slow, Keys: 100, Draw: DrawOnce}
	hot := Workload{Name: "hot", Limit: slow, Keys: 1}
	// Two passes of the last case open its key and warm it up, so that they are no rounds.
	for _, c := range []struct {
		w                 Workload
		passes, disturbed int
	}{{flood, 0, 0}, {flood, 1, 1}, {flood, 3, 3}, {hot, 3, 1}} {
		o.busy = busyMachine(int64(c.passes))
		r := resultOf(t, o, c.w, exactBucket("a"))
		assert.Len(t, r.Rounds, 8, "none is added and none is missing")
		assert.Equal(t, c.disturbed, r.Disturbed, "%+v", c)
		for i, p := range r.Rounds {
			assert.Equal(t, i < c.disturbed, p.Disturbed, "%+v", c)
		}
	}

	o.busy = unknown
	assert.Zero(t, resultOf(t, o, flood, exactBucket("a")).Disturbed, "the system does not tell")
	far := exactBucket("a")
	far.Elsewhere, o.busy = true, busyMachine(1<<20)
	r := resultOf(t, o, flood, far)
	assert.Zero(t, r.Disturbed, "the load is the contender's own process")
	assert.Zero(t, r.Rounds[0].Others)
}

func TestContenderThatMeasuresItselfIsWatchedToo(t *testing.T) {
	o, c := quick(), Contender{Name: "own", Yardstick: YardstickC, Measure: func(context.Context, Workload, time.Duration) (Measured, error) {
		return Measured{Pass: Pass{Calls: 5, Passed: 5, Elapsed: time.Second, CPU: time.Second}}, nil
	}}
	o.Rounds, o.busy = 8, busyMachine(1)
	r := resultOf(t, o, Workload{Name: "hot", Limit: Loose, Keys: 1}, c)
	assert.Len(t, r.Rounds, o.Rounds)
	assert.Equal(t, 1, r.Disturbed, "the first round")
	assert.True(t, r.Outside)
	o.busy = busyMachine(1 << 20)
	assert.Equal(t, o.Rounds, resultOf(t, o, Workload{Name: "hot", Limit: Loose, Keys: 1}, c).Disturbed)
	c.Yardstick = ""
	assert.Zero(t, resultOf(t, o, Workload{Name: "far", Draw: DrawElsewhere}, c).Disturbed, "its processes are unknown")
}
