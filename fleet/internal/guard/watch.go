package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

var (
	// ErrSilent: no call sent lately has been answered.
	ErrSilent = errors.New("no answer")
	// ErrSlow: the server answers, but not within the budget for five times Config.Silence.
	ErrSlow = errors.New("for a while every answer came after the budget")
)

// watch judges a server by when its answers arrive.
//
// A watch counts time in ticks of its own goroutine, since a process short of processors reads
// answers late. Each tick, however late, counts once. A tick ends with a turn through the
// scheduler's queue, which also holds the goroutines that read answers. So the count stops while
// these goroutines cannot run.
//
// Its methods may be called by any number of goroutines, except run and step.
type watch struct {
	tick time.Duration
	// budget is the budget of most calls, for ErrSlow.
	budget time.Duration

	// now is the number of the present tick.
	now atomic.Int64
	// newest is the latest tick with an answered call.
	newest atomic.Int64
	// under counts the calls under way.
	under atomic.Int64
	// sent counts calls under way by the tick of sending, modulo its length, longer than any call.
	sent    [256]atomic.Int32
	running atomic.Bool

	// Whether answers came since the last tick, within the budget and after it.
	inTime, late atomic.Bool

	// Only run uses these.
	// idle counts the ticks in a row without a call under way.
	idle int
	// slow counts the ticks with late answers since the last answer in time.
	slow int
}

const (
	// silentTicks make up Config.Silence.
	silentTicks = 10
	// slowTicks with late answers, and none in time between them, make a server slow.
	slowTicks = 50
	// idleTicks without a call end the goroutine of a watch.
	idleTicks = 20
	// onTime bounds the lateness of a tick if this process is not short of processors. Only then do
	// late answers count against the server.
	onTime = time.Millisecond
)

func newWatch(silence, budget time.Duration) *watch {
	w := &watch{tick: max(silence/silentTicks, 1), budget: budget}
	w.newest.Store(-1)
	return w
}

type sending struct {
	tick   int64
	sentAt time.Time
	budget time.Duration
}

// send notes that a call is sent. receive must follow.
func (w *watch) send(budget time.Duration) sending {
	s := sending{tick: w.now.Load(), sentAt: time.Now(), budget: budget}
	w.under.Add(1)
	w.sent[s.tick%int64(len(w.sent))].Add(1)
	return s
}

func (w *watch) receive(sending sending) {
	w.sent[sending.tick%int64(len(w.sent))].Add(-1)
	w.under.Add(-1)
}

func (w *watch) hear(sending sending) {
	for newest := w.newest.Load(); sending.tick > newest && !w.newest.CompareAndSwap(newest, sending.tick); {
		newest = w.newest.Load()
	}
	seen := &w.late
	if sending.within() {
		seen = &w.inTime
	}
	// Most calls find seen set, and write nothing.
	if !seen.Load() {
		seen.Store(true)
	}
}

func (s sending) within() bool { return time.Since(s.sentAt) <= s.budget }

// heardLately reports whether a call of the last ticks has been answered.
func (w *watch) heardLately() bool { return w.now.Load()-w.newest.Load() <= 2 }

// stale reports whether a call has taken as long as a server that is silent.
func (w *watch) stale(sending sending) bool { return w.now.Load()-sending.tick >= silentTicks }

// step begins the next tick and returns an error if the server should not be asked. punctual reports
// whether the previous tick was on time.
func (w *watch) step(punctual bool) error {
	now := w.now.Add(1)
	inTime, late := w.inTime.Swap(false), w.late.Swap(false)
	switch {
	case inTime:
		w.slow = 0
	case late && punctual:
		w.slow++
	}
	if w.under.Load() > 0 {
		w.idle = 0
	} else {
		w.idle++
	}
	if w.slow >= slowTicks {
		w.slow = 0
		return fmt.Errorf("%w of %v", ErrSlow, w.budget)
	}
	// Calls sent after the newest answered call.
	first := max(w.newest.Load()+1, now-int64(len(w.sent))+1, 0)
	for tick := first; tick <= now-silentTicks; tick++ {
		if w.sent[tick%int64(len(w.sent))].Load() > 0 {
			return fmt.Errorf("%w for %v", ErrSilent, silentTicks*w.tick)
		}
	}
	return nil
}

// run steps through the ticks until no call has been under way for some, or base ends.
func (w *watch) run(base context.Context, judged func(error)) {
	timer := time.NewTimer(w.tick)
	defer timer.Stop()
	for {
		due := time.Now().Add(w.tick)
		select {
		case <-timer.C:
		case <-base.Done():
			return
		}
		// The goroutines that read answers were ready before.
		runtime.Gosched()
		if err := w.step(time.Since(due) <= onTime); err != nil {
			judged(err)
		}
		if w.idle >= idleTicks {
			w.idle = 0
			w.running.Store(false)
			// A call may have come that found the watch running.
			if w.under.Load() == 0 || !w.running.CompareAndSwap(false, true) {
				return
			}
		}
		timer.Reset(w.tick)
	}
}
