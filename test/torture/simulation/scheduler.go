package simulation

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

const never = int64(math.MaxInt64)

// actor is a goroutine of the simulation. It runs while it has the baton, or waits for it.
type actor struct {
	id   int
	name string
	wake chan struct{}

	point string // where it last waited

	waits    bool        // in Await
	ready    func() bool // nil: never
	deadline int64       // of Await, in nanoseconds since the run began
	early    bool        // its deadline may come early
	stalled  int         // number of decisions for which it is passed over
	asleep   int64       // instant until which it stands still, in virtual time
	own      bool        // it belongs to the engine, and faults may kill it
	caller   *caller     // nil if it is not a caller's

	judged judged // the last call that the policy allowed it
}

// scheduler hands the baton on, and implements seam.Scheduler. Its decisions follow from its random
// numbers and the actors' steps.
type scheduler struct {
	random random
	chaos  chaos
	quiet  bool // nothing breaks any more

	actors  []*actor
	made    int
	current *actor
	back    chan struct{} // gives the baton back to run

	steps   int
	elapsed int64 // virtual time since the run began
	jump    int64 // time that is to pass at once, although an actor could go on
	hash    uint64
	recent  [256]event
	failure string
	log     func(line string) // of a replay; nil otherwise

	deaths  []Death
	closing bool
	keeps   bool         // Close saves the last state
	final   bytes.Buffer // that state
	changes []int        // the steps at which changes were made
	death   func(point string)
	each    func() // is called after each step
	joined  func(*caller)

	table *table.Table[key]
	queue *cmdqueue.Queue[table.Command[key]]
}

type event struct {
	actor *actor
	point string
}

// chaos sets the faults. A chance is once in so many; 0 is never.
type chaos struct {
	stay   int    // number of decisions in 16 that leave the baton where it is
	stall  uint64 // at each step
	sleep  uint64 // at each step of the engine's
	jump   uint64 // at each step
	clock  uint64 // at each step
	early  uint64 // at each step
	refuse uint64 // at each command sent
	die    uint64 // at each possible point of death
	point  string // a point that kills every second time
	deaths int    // the most
	kinds  uint64 // bit 0: panics, bit 1: Goexit
	leap   uint64 // at each step while the engine is being closed, once: 6 s pass
}

// maxSteps bounds the steps of a run. A longer run means that an actor runs in circles.
const maxSteps = 60_000

func (s *scheduler) start(name string, function func()) *actor {
	s.made++
	a := &actor{id: s.made, name: name, wake: make(chan struct{}), deadline: never}
	s.actors = append(s.actors, a)
	go func() {
		<-a.wake
		defer s.exit(a)
		function()
	}()
	return a
}

func (s *scheduler) Go(function func()) { s.start("engine", function).own = true }

// exit removes an actor that has ended and hands the baton on.
func (s *scheduler) exit(actor *actor) {
	s.note(actor, "end")
	for i, other := range s.actors {
		if other == actor {
			s.actors = append(s.actors[:i], s.actors[i+1:]...)
			break
		}
	}
	s.current = nil
	s.hand(s.pick())
}

func (s *scheduler) hand(next *actor) {
	s.current = next
	if next == nil {
		s.back <- struct{}{}
		return
	}
	next.wake <- struct{}{}
}

// run lets the actors go on until none can without time passing, or time is to jump.
func (s *scheduler) run() {
	if next := s.pick(); next != nil {
		s.hand(next)
		<-s.back
	}
}

// yield gives the baton away, and returns when it has come back.
func (s *scheduler) yield(actor *actor) {
	next := s.pick()
	if next == actor {
		return
	}
	s.hand(next)
	<-actor.wake
}

// pick chooses the actor that goes on, or nil if none can.
func (s *scheduler) pick() *actor {
	if s.jump > 0 || s.steps > maxSteps {
		return nil
	}
	if actor := s.current; actor != nil && actor.stalled == 0 && int(s.random.next()&15) < s.chaos.stay && s.enabled(actor) {
		return actor
	}
	n := len(s.actors)
	if n == 0 {
		return nil
	}
	var stalled *actor
	next := s.random.n(n)
	for range n {
		if next++; next >= n {
			next -= n
		}
		actor := s.actors[next]
		if !s.enabled(actor) {
			continue
		}
		if actor.stalled > 0 {
			actor.stalled--
			stalled = actor
			continue
		}
		return actor
	}
	if stalled != nil {
		stalled.stalled = 0
	}
	return stalled
}

func (s *scheduler) enabled(actor *actor) bool {
	if actor.asleep > s.elapsed && !s.quiet {
		return false
	}
	return !actor.waits || actor.early || actor.deadline <= s.elapsed || actor.ready != nil && actor.ready()
}

func (s *scheduler) passes(d int64) {
	if d > 0 {
		time.Sleep(time.Duration(d))
		s.elapsed += d
	}
}

func (s *scheduler) next() int64 {
	next := never
	for _, actor := range s.actors {
		switch {
		case actor.asleep > s.elapsed && !s.quiet:
			next = min(next, actor.asleep)
		case actor.waits:
			next = min(next, actor.deadline)
		}
		if actor.caller != nil && actor.caller.until > s.elapsed {
			next = min(next, actor.caller.until)
		}
	}
	return next
}

func (s *scheduler) note(actor *actor, point string) {
	s.steps++
	if s.log != nil {
		s.log(fmt.Sprintf("%6d %10v %s %d: %s", s.steps, time.Duration(s.elapsed), actor.name, actor.id, point))
	}
	s.recent[s.steps%len(s.recent)] = event{actor, point}
	h := s.hash ^ uint64(actor.id)
	for i := range len(point) {
		h = (h ^ uint64(point[i])) * 0x100000001b3
	}
	s.hash = h
}

// tell logs an event of the current actor between two steps.
func (s *scheduler) tell(format string, args ...any) {
	if s.log != nil && s.current != nil {
		s.log(fmt.Sprintf("      %s %d: ", s.current.name, s.current.id) + fmt.Sprintf(format, args...))
	}
}

func (s *scheduler) fail(format string, args ...any) {
	s.tell("FAILS: "+format, args...)
	if s.failure == "" {
		s.failure = fmt.Sprintf(format, args...) + s.story()
		s.quiet = true
	}
}

func (s *scheduler) story() string {
	var builder strings.Builder
	fmt.Fprintf(&builder, "\nafter %d steps and %v, of which the last:", s.steps, time.Duration(s.elapsed))
	var last *actor
	for i := max(s.steps-len(s.recent)+1, 1); i <= s.steps; i++ {
		event := s.recent[i%len(s.recent)]
		if event.actor != last {
			fmt.Fprintf(&builder, "\n  %s %d:", event.actor.name, event.actor.id)
			last = event.actor
		}
		fmt.Fprintf(&builder, " %s;", event.point)
	}
	return builder.String()
}

func (s *scheduler) Step(point string) {
	actor := s.current
	if actor == nil {
		return // the world is being built or looked at
	}
	s.note(actor, point)
	s.each()
	if point == "wait: joined" {
		s.joined(actor.caller)
	}
	if !s.quiet {
		s.disturb(actor)
	}
	s.yield(actor)
}

func (s *scheduler) disturb(actor *actor) {
	chaos := &s.chaos
	if s.random.one(chaos.stall) {
		actor.stalled = 1 << s.random.n(11)
	}
	if actor.own && s.random.one(chaos.sleep) {
		actor.asleep = s.elapsed + 1<<s.random.n(25) // up to 17 ms
	}
	if s.random.one(chaos.jump) {
		s.jump = int64(1) << s.random.n(26) // up to 67 ms
	}
	if s.random.one(chaos.leap) && s.closing {
		s.jump, chaos.leap = int64(6*time.Second), 0 // longer than Close waits for a goroutine
	}
	if s.random.one(chaos.early) {
		for _, other := range s.actors {
			if other.own && other.waits && other.deadline != never {
				other.early = true
			}
		}
	}
}

func (s *scheduler) Fault(point string) {
	actor := s.current
	if actor == nil {
		return
	}
	s.death(point)
	s.Step(point)
	if point == "change: made" {
		s.changes = append(s.changes, s.steps)
	}
	chaos := &s.chaos
	if s.quiet || !actor.own || len(s.deaths) >= chaos.deaths {
		return
	}
	if s.random.one(chaos.die) || point == chaos.point && s.random.one(2) {
		exit := chaos.kinds == 2 || chaos.kinds == 3 && s.random.one(2)
		how := "panic"
		if exit {
			how = "Goexit"
		}
		s.deaths = append(s.deaths, Death{point, how})
		s.note(actor, how)
		if exit {
			runtime.Goexit()
		}
		panic("injected at " + point)
	}
}

func (s *scheduler) Await(point string, patience time.Duration, ready func() bool) bool {
	actor := s.current
	if actor == nil {
		panic("the world waits for itself")
	}
	actor.waits, actor.ready, actor.deadline, actor.point = true, ready, never, point
	if left := never - s.elapsed; int64(patience) < left {
		actor.deadline = s.elapsed + int64(patience)
	}
	s.Step(point)
	actor.waits, actor.early = false, false
	ok := ready != nil && ready()
	actor.ready = nil
	if ok {
		s.hash++
	}
	return ok
}

func (s *scheduler) Last() io.Writer {
	if !s.keeps {
		return nil
	}
	return &s.final
}

func (s *scheduler) Refuse(point string) bool {
	if s.current == nil {
		return false
	}
	s.Step(point)
	return !s.quiet && s.random.one(s.chaos.refuse)
}

func (s *scheduler) Seed() maphash.Seed { return hashSeed }

func (s *scheduler) Built(t, q any) {
	s.table, s.queue = t.(*table.Table[key]), q.(*cmdqueue.Queue[table.Command[key]])
}

var _ seam.Scheduler = (*scheduler)(nil)

// random is a splitmix64.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n returns a number from 0 to n-1.
func (r *random) n(n int) int { return int(r.next() >> 33 % uint64(n)) }

// one reports true once in so many times, and never if in is 0.
func (r *random) one(in uint64) bool { return in != 0 && r.next()>>33%in == 0 }

type judged struct {
	n    int64
	turn policy.Instant // when it starts
	now  policy.Instant
	read int // the step before which the word was read
}

// Death names the point at which a goroutine died, and the means: panic or Goexit.
type Death struct{ Point, How string }

const seamForever = time.Duration(never)
