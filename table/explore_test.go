package table

import (
	"fmt"
	"iter"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// An explorer runs a few processes one at a time and decides at each step which goes on. The
// explorer repeats a scenario with every schedule that has a bounded number of preemptions:
// switches away from a process that could have gone on. Other switches are free. Few preemptions
// find nearly every fault (Musuvathi and Qadeer, "Iterative context bounding", 2007).
//
// Nothing else runs between two steps, so its decisions reproduce a schedule.
type explorer struct {
	path []decision
	// depth is the number of decisions made so far in this schedule.
	depth     int
	schedules int

	processes []*process
	current   *process
	// preemptions is the number of preemptions left in this schedule.
	preemptions int
	trace       []event
}

type decision struct{ picked, options int }

// event is a step of a schedule: the process, and the point from which it went on.
type event struct{ process, point string }

type process struct {
	name  string
	point string
	// ready is nil if the process waits for nothing.
	ready   func() bool
	done    bool
	failure string

	yield  func(struct{}) bool
	resume func() (struct{}, bool)
	stop   func()
}

// stopped unwinds a process when its schedule is over.
type stopped struct{}

// A longer schedule runs in circles.
const mostSteps = 3000

// explore runs the scenario under every schedule with so many preemptions. prepare makes everything
// anew and spawns the processes. It returns functions to call after each step and at the end of all
// processes. Each returns an error text, or "".
func explore(t *testing.T, preemptions int, prepare func(x *explorer) (each, end func() string)) {
	t.Helper()
	x := &explorer{}
	begin := time.Now()
	for {
		x.depth, x.processes, x.current, x.trace = 0, nil, nil, x.trace[:0]
		x.preemptions = preemptions
		each, end := prepare(x)
		wrong := x.run(each)
		if wrong == "" {
			wrong = end()
		}
		x.schedules++
		if wrong != "" {
			t.Fatalf("schedule %d: %s\n%s", x.schedules, wrong, x.story())
		}
		if !x.another() {
			break
		}
	}
	t.Logf("%d schedules, all with up to %d preemptions, in %v",
		x.schedules, preemptions, time.Since(begin).Round(time.Millisecond))
}

func (x *explorer) spawn(name string, body func()) {
	p := &process{name: name, point: "begin"}
	p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer func() {
			p.done = true
			if r := recover(); r != nil && r != (stopped{}) {
				p.failure = fmt.Sprintf("%s panicked: %v\n%s", name, r, debug.Stack())
			}
		}()
		body()
	})
	x.processes = append(x.processes, p)
}

// step lets others run. Outside of processes step does nothing.
func (x *explorer) step(point string) { x.await(point, nil) }

// await lets others run until ready returns true. Nil is always ready.
func (x *explorer) await(point string, ready func() bool) {
	p := x.current
	if p == nil {
		return
	}
	p.point, p.ready = point, ready
	if !p.yield(struct{}{}) {
		panic(stopped{})
	}
	p.ready = nil
}

func (x *explorer) choose(options int) int {
	if options < 2 {
		return 0
	}
	if x.depth == len(x.path) {
		x.path = append(x.path, decision{0, options})
	}
	d := x.path[x.depth]
	if d.options != options {
		panic("the scenario is not the same each time it is run")
	}
	x.depth++
	return d.picked
}

func (x *explorer) another() bool {
	for n := len(x.path); n > 0; n-- {
		if d := &x.path[n-1]; d.picked+1 < d.options {
			d.picked++
			x.path = x.path[:n]
			return true
		}
	}
	return false
}

func (x *explorer) run(each func() string) string {
	defer func() {
		for _, p := range x.processes {
			x.current = p
			p.stop()
		}
		x.current = nil
	}()
	var options []*process
	for range mostSteps {
		options = options[:0]
		running, waiting := x.current, ""
		if running != nil && running.enabled() {
			options = append(options, running)
		} else {
			running = nil
		}
		for _, p := range x.processes {
			switch {
			case p.done || p == running:
			case !p.enabled():
				waiting += fmt.Sprintf(" %s (%s)", p.name, p.point)
			case running == nil || x.preemptions > 0:
				options = append(options, p)
			}
		}
		if len(options) == 0 {
			if waiting != "" {
				return "all wait for each other:" + waiting
			}
			return ""
		}
		p := options[x.choose(len(options))]
		if running != nil && p != running {
			x.preemptions--
		}
		x.trace = append(x.trace, event{p.name, p.point})
		x.current = p
		p.resume()
		if p.failure != "" {
			return p.failure
		}
		if wrong := each(); wrong != "" {
			return wrong
		}
	}
	return fmt.Sprintf("no end after %d steps", mostSteps)
}

func (p *process) enabled() bool { return !p.done && (p.ready == nil || p.ready()) }

func (x *explorer) story() string {
	var b strings.Builder
	last := ""
	trace := x.trace
	if len(trace) > 200 {
		trace = trace[:200]
	}
	for _, e := range trace {
		if e.process != last {
			fmt.Fprintf(&b, "%s goes on from\n", e.process)
			last = e.process
		}
		fmt.Fprintf(&b, "    %s\n", e.point)
	}
	return b.String()
}
