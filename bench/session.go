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

// ask has the callers ask at the same time, by these jobs, and others beside them, whose calls are
// only audited. See workers.run.
func (x *session) ask(workers workers, d time.Duration, finish func(), jobs []job, callers []*caller, others ...*caller) Pass {
	asked, passed := sumAsked(callers), sumPassed(callers)
	begun, spent := beginWindow(slices.Concat(callers, others)), x.limiter.spent()
	pass, window := workers.run(d, finish, jobs...)
	pass.Behind = x.limiter.spent() - spent
	pass.Calls, pass.Passed = sumAsked(callers)-asked, sumPassed(callers)-passed
	x.windows = append(x.windows, begun.end(window))
	return pass
}

// askOnce has each caller ask for its keys once, untimed.
func (x *session) askOnce(w workers, finish func(), callers []*caller) {
	x.ask(w, 0, finish, jobsOf(callers, x.limiter, (*caller).once, false), callers)
}

// loop has each caller ask for its keys repeatedly.
func (x *session) loop(w workers, d time.Duration, callers []*caller, timed bool) Pass {
	return x.ask(w, d, nil, jobsOf(callers, x.limiter, (*caller).loop, timed), callers)
}
