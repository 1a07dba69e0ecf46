package bench

import (
	"slices"
	"time"
)

// session asks a limiter, and keeps for its audit when it was asked.
type session struct {
	limiter Limiter
	windows []askedWindow
}

// askedWindow is a window, with the callers' counts before and after.
type askedWindow struct {
	Window
	callers       []*caller
	before, after []tally
}

// count adds the calls for each key to times, for callers that loop over their streams. It returns how many passed.
func (w askedWindow) count(times []int64) (passed int64) {
	for i, caller := range w.callers {
		n := int64(len(caller.order))
		upTo := func(asked int64, index int) int64 {
			if int64(index) < asked%n {
				return asked/n + 1
			}
			return asked / n
		}
		for index, key := range caller.order {
			times[key] += upTo(w.after[i].asked, index) - upTo(w.before[i].asked, index)
		}
		passed += w.after[i].passed - w.before[i].passed
	}
	return passed
}

// ask has the callers ask at the same time, by these jobs, and others beside them, whose calls are
// only audited. See workers.run.
func (x *session) ask(workers workers, duration time.Duration, finish func(), jobs []job, callers []*caller, others ...*caller) (pass Pass) {
	asked := askedWindow{callers: slices.Concat(callers, others)}
	asked.before = tallies(asked.callers)
	spent := x.limiter.spent()
	pass, asked.Window = workers.run(duration, finish, jobs...)
	pass.Behind = x.limiter.spent() - spent
	asked.after = tallies(asked.callers)
	for i := range callers {
		pass.Calls += asked.after[i].asked - asked.before[i].asked
		pass.Passed += asked.after[i].passed - asked.before[i].passed
	}
	x.windows = append(x.windows, asked)
	return pass
}

// askOnce has each caller ask for its keys once, untimed.
func (x *session) askOnce(w workers, finish func(), callers []*caller) {
	x.ask(w, 0, finish, jobsOf(callers, x.limiter, (*caller).once, false), callers)
}

// loop has each caller ask for its keys repeatedly.
func (x *session) loop(w workers, duration time.Duration, callers []*caller, timed bool) Pass {
	return x.ask(w, duration, nil, jobsOf(callers, x.limiter, (*caller).loop, timed), callers)
}
