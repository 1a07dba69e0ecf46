package supervisor

import (
	"fmt"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// Kind is the kind of an Event.
type Kind int

const (
	ChildStarted    Kind = iota // Run is called; before each of the following
	ChildExited                 // it ended unasked; Err is the reason, nil if Run returned nil
	ChildRestarting             // the child is about to start again; Err is the reason for its end
	ChildStopped                // it ended after its context was cancelled; Err is the reason
	ChildAbandoned              // the child did not end within its Shutdown limit
	AbandonedEnded              // an abandoned child has ended, with Err; Run may have returned
	Escalated                   // the supervisor gives up; Run will return Err
	OwnFault                    // the supervisor's bookkeeping died of Err and was started again
	HookFault                   // OnEvent died of Err during the event before
	ChildFailing                // the child reported Err, the first of a series: see Report
	ChildRecovered              // the child reported that its work succeeds again
)

// String returns the kind in words.
func (k Kind) String() string {
	names := [...]string{"child started", "child exited", "child restarting", "child stopped",
		"child abandoned", "abandoned child ended", "escalated", "own fault", "hook fault",
		"child failing", "child recovered"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// An Event describes a fact. It goes to Config.OnEvent, which is called on its own goroutine:
// serially, in order, but later than the fact.
//
// The hook may call any method of the Supervisor except Run. It should not block: supervision goes
// on, but up to 1024 events wait meanwhile and more are lost (see Missed). A Run about to return
// waits for the hook, a second at most. A panic or Goexit in the hook ends that call only, and a
// HookFault event follows.
type Event struct {
	Kind       Kind
	Supervisor string    // Config.Name
	Child      string    // the child's name; empty for Escalated, OwnFault and HookFault
	Err        error     // the reason, depending on Kind
	Time       time.Time // when it happened
	Missed     int       // the number of events lost before
}

// String formats the event as a line for a log.
func (e Event) String() string {
	s := e.Supervisor
	if e.Child != "" {
		s += "/" + e.Child
	}
	s += ": " + e.Kind.String()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Missed > 0 {
		s += fmt.Sprintf(" (%d events lost before)", e.Missed)
	}
	return s
}

const (
	maxPending = 1024        // events that wait for the hook, some 90 KB; see Event
	hookGrace  = time.Second // a Run's longest wait for the hook
)

// mailbox calls the hook on a goroutine that lives only while events wait. On the supervisor's own
// goroutine a full pipe behind a logger would hold up restarts.
type mailbox struct {
	hook func(Event) // nil: events are dropped

	mu struct { // a leaf: neither a lock nor user code under it
		sync.Mutex
		pending  []Event
		missed   int
		draining bool          // a goroutine works on pending
		idle     chan struct{} // if not nil, to be closed when pending is empty
	}
}

// post appends an event. It never blocks and never calls the hook itself.
func (m *mailbox) post(e Event) {
	if m.hook == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.pending) >= maxPending {
		m.mu.missed++
		return
	}
	e.Missed, m.mu.missed = m.mu.missed, 0
	m.mu.pending = append(m.mu.pending, e)
	if !m.mu.draining {
		m.mu.draining = true
		m.drain()
	}
}

// drain starts the goroutine that calls the hook until nothing is pending. If the hook kills it,
// another continues with the next event.
func (m *mailbox) drain() {
	var at Event
	spawn(seam.Seam{}, func() error {
		for {
			var ok bool
			if at, ok = m.next(); !ok {
				return nil
			}
			m.hook(at)
		}
	}, func(reason error) {
		if reason == nil {
			return
		}
		if at.Kind != HookFault { // else a hook that always dies would never be done
			m.post(Event{Kind: HookFault, Supervisor: at.Supervisor, Err: reason, Time: time.Now()})
		}
		m.drain()
	})
}

// next takes the oldest event. If there is none it ends the draining: the caller must return.
func (m *mailbox) next() (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.pending) == 0 {
		m.mu.pending = nil
		m.mu.draining = false
		if m.mu.idle != nil {
			close(m.mu.idle)
			m.mu.idle = nil
		}
		return Event{}, false
	}
	e := m.mu.pending[0]
	m.mu.pending[0] = Event{}
	m.mu.pending = m.mu.pending[1:]
	return e, true
}

// flush waits until the hook has seen every event, but no longer than hookGrace.
func (m *mailbox) flush() {
	m.mu.Lock()
	if !m.mu.draining {
		m.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	m.mu.idle = idle
	m.mu.Unlock()

	limit := time.NewTimer(hookGrace)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	}
}
