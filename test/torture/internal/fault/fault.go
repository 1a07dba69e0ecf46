// Package fault makes an engine's writer fail in the only user code that it runs: FreshAt.
package fault

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Kind is a way for the writer to fail.
type Kind int32

const (
	None Kind = iota
	Panic
	// Goexit ends its goroutine.
	Goexit
	// Stall has it stand still for Switch.Stall.
	Stall
)

// Switch arms faults. The zero value is ready, for many goroutines. Set fields before use.
type Switch struct {
	Stall time.Duration
	// Yield lets other goroutines run once in Yield times between the reading of a word and its
	// swap, which may then fail; 0 is never.
	Yield int

	armed atomic.Int32
	fired atomic.Int64
}

// Arm has the writer fail the next time that it looks at a key's word.
func (s *Switch) Arm(kind Kind) { s.armed.Store(int32(kind)) }

// Fired returns the number of failures.
func (s *Switch) Fired() int64 { return s.fired.Load() }

func (s *Switch) strike() {
	kind := Kind(s.armed.Load())
	if kind == None || !onWriter() || !s.armed.CompareAndSwap(int32(kind), int32(None)) {
		return
	}
	s.fired.Add(1)
	switch kind {
	case Panic:
		panic("torture: the writer is killed")
	case Goexit:
		runtime.Goexit()
	case Stall:
		time.Sleep(s.Stall)
	}
}

// onWriter reports whether this is a writer's goroutine. Callers reach FreshAt too, in Reset.
func onWriter() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "/engine.(*writer[") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (s *Switch) yield() {
	if s.Yield > 0 && rand.IntN(s.Yield) == 0 {
		runtime.Gosched()
	}
}

// Wrap returns a policy that answers like limit, of package policy, and fails as s says.
func (s *Switch) Wrap(limit policy.Policy) policy.Policy {
	if inUse, ok := limit.(occupied); ok {
		return faultyInUse{inUse, s}
	}
	w := faulty{limit.(whole), s}
	choker, isFast := limit.(policy.Choker)
	restorer, isExact := limit.(policy.Restorer)
	switch {
	case isFast && isExact:
		return struct {
			fast
			policy.Restorer
		}{fast{w, choker}, restorer}
	case isFast:
		return fast{w, choker}
	}
	return w
}

// whole has all interfaces of the policies of package policy, so that a wrapped policy loses none of them.
type whole interface {
	policy.Policy
	policy.Refunder
	policy.Relative
}

type faulty struct {
	whole
	s *Switch
}

func (f faulty) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	f.s.yield()
	return f.whole.Take(word, now, n, patience)
}

func (f faulty) Refund(word uint64, now policy.Instant, n int64) uint64 {
	f.s.yield()
	return f.whole.Refund(word, now, n)
}

func (f faulty) Cancel(word, taken uint64, at, now policy.Instant, n, undone int64) uint64 {
	f.s.yield()
	return f.whole.Cancel(word, taken, at, now, n, undone)
}

func (f faulty) FreshAt(word uint64) policy.Instant {
	f.s.strike()
	f.s.yield()
	return f.whole.FreshAt(word)
}

// occupied has all interfaces of a limit of units in use, so that a wrapped limit loses none of them.
type occupied interface {
	policy.Policy
	policy.Choker
	policy.Occupier
	policy.Relative
	Alone(word uint64) uint64
}

type faultyInUse struct {
	occupied
	s *Switch
}

func (f faultyInUse) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	f.s.yield()
	return f.occupied.Take(word, now, n, patience)
}

func (f faultyInUse) Choke(word uint64, now policy.Instant) (uint64, bool) {
	f.s.yield()
	return f.occupied.Choke(word, now)
}

func (f faultyInUse) Release(word, taken uint64, now policy.Instant, n int64) (uint64, bool) {
	f.s.yield()
	return f.occupied.Release(word, taken, now, n)
}

func (f faultyInUse) Extend(word, taken uint64, now policy.Instant, n int64) (uint64, bool) {
	f.s.yield()
	return f.occupied.Extend(word, taken, now, n)
}

func (f faultyInUse) Vacate(word uint64, now policy.Instant) uint64 {
	f.s.yield()
	return f.occupied.Vacate(word, now)
}

func (f faultyInUse) FreshAt(word uint64) policy.Instant {
	f.s.strike()
	f.s.yield()
	return f.occupied.FreshAt(word)
}

type fast struct {
	faulty
	choker policy.Choker
}

func (f fast) Choke(word uint64, now policy.Instant) (uint64, bool) {
	f.s.yield()
	return f.choker.Choke(word, now)
}
