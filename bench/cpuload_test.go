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
		{someStat, "", 7140 * tick, 3}, // all, if it is not said
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
		n := looks.Add(1) - 1 // the first look is of the run itself
		return time.Hour * time.Duration(min(n/2, disturbed)), 1, true
	}
}

func TestDisturbedPassesAreRepeated(t *testing.T) {
	o := quick()
	o.Rounds, o.NewRecorder = 8, nil
	flood := Workload{Name: "flood", Limit: slow, Keys: 100, Draw: DrawOnce}
	hot := Workload{Name: "hot", Limit: slow, Keys: 1}
	for _, c := range []struct {
		w                   Workload
		passes              int64 // disturbed
		repeated, disturbed int
	}{
		{flood, 0, 0, 0},
		{flood, 1, 1, 0},
		{flood, 2, 2, 0},
		{flood, 3, 2, 1}, // twice and no more
		{hot, 3, 1, 0},   // opening and warming up are not repeated
	} {
		o.busy = busyMachine(c.passes)
		r := resultOf(t, o, c.w, exactBucket("a"))
		assert.Len(t, r.Rounds, 8, "none is added and none is missing")
		assert.Equal(t, c.repeated, r.Repeated, "%+v", c)
		assert.Equal(t, c.disturbed, r.Disturbed, "%+v", c)
		assert.Equal(t, c.disturbed > 0, r.Rounds[0].Disturbed, "%+v", c)
	}
}

func TestContenderThatMeasuresItselfIsWatchedToo(t *testing.T) {
	o, c := quick(), Contender{Name: "own", Yardstick: YardstickC, Measure: func(context.Context, Workload, time.Duration) (Measured, error) {
		return Measured{Pass: Pass{Calls: 5, Passed: 5, Elapsed: time.Second, CPU: time.Second}}, nil
	}}
	o.Rounds, o.busy = 8, busyMachine(1)
	r := resultOf(t, o, Workload{Name: "hot", Limit: Loose, Keys: 1}, c)
	assert.Len(t, r.Rounds, o.Rounds)
	assert.Equal(t, 1, r.Repeated, "the first round")
	assert.Zero(t, r.Disturbed)
	assert.True(t, r.Outside)
	o.busy = busyMachine(1 << 20)
	assert.Equal(t, o.Rounds, resultOf(t, o, Workload{Name: "hot", Limit: Loose, Keys: 1}, c).Disturbed)
	c.Yardstick = ""
	assert.Zero(t, resultOf(t, o, Workload{Name: "far", Draw: DrawElsewhere}, c).Disturbed, "its processes are unknown")
}

func TestNothingIsRepeatedWithoutNeedOrTime(t *testing.T) {
	run := func(rounds int, busy busyTime, elsewhere bool) Result {
		o, c := quick(), exactBucket("a")
		o.Rounds, o.busy, o.NewRecorder, c.Elsewhere = rounds, busy, nil, elsewhere
		return resultOf(t, o, Workload{Name: "flood", Limit: slow, Keys: 100, Draw: DrawOnce}, c)
	}
	always := func() busyTime { return busyMachine(1 << 20) }
	r := run(8, always(), false)
	assert.Equal(t, 8, r.Disturbed)
	assert.LessOrEqual(t, r.Repeated, 2, "a quarter of the run's passes")
	const many = 5 * maxUseless
	assert.Equal(t, maxUseless, run(many, always(), false).Repeated)

	// Busy, then quiet for a pass or two, then busy again.
	var looks atomic.Int64
	r = run(many, func() (time.Duration, int, bool) {
		busy := (looks.Add(1) - 1) / 2
		if busy > many/2 {
			busy -= 2
		}
		return time.Hour * time.Duration(busy), 1, true
	}, false)
	assert.Greater(t, r.Repeated, maxUseless, "quiet for a while")

	r = run(8, unknown, false)
	assert.Zero(t, r.Disturbed, "the system does not tell")
	assert.Zero(t, r.Repeated, "the system does not tell")

	r = run(8, always(), true)
	assert.Zero(t, r.Disturbed, "the load is the contender's own process")
	assert.Zero(t, r.Rounds[0].Others)
	assert.True(t, r.Elsewhere)
}
