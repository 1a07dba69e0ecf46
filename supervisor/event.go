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
	// ChildStarted says that Run is called. ChildStarted comes before each of the following events
	// of a child.
	ChildStarted Kind = iota
	// ChildExited says that the child ended unasked. Err is the reason, nil if Run returned nil.
	ChildExited
	// ChildRestarting says that the child is about to start again. Err is the reason for its end.
	ChildRestarting
	// ChildStopped says that the child ended after its context was cancelled. Err is the reason.
	ChildStopped
	// ChildAbandoned says that the child did not end within its Shutdown limit.
	ChildAbandoned
	// AbandonedEnded says that an abandoned child has ended, with Err. Run may have returned.
	AbandonedEnded
	// Escalated says that the supervisor gives up. Run will return Err.
	Escalated
	// OwnFault says that the supervisor's bookkeeping died of Err and was started again.
	OwnFault
	// HookFault says that OnEvent died of Err during the event before.
	HookFault
	// ChildFailing says that the child reported Err, the first of a series: see Report.
	ChildFailing
	// ChildRecovered says that the child reported that its work succeeds again.
	ChildRecovered
	// Notice is no event of a Supervisor: its owner reports Err.
	Notice
	// Misuse is no event of a Supervisor: its owner reports by Err that its units are not given back in time.
	Misuse
)

// String returns the kind in words.
func (k Kind) String() string {
	names := [...]string{"child started", "child exited", "child restarting", "child stopped",
		"child abandoned", "abandoned child ended", "escalated", "own fault", "hook fault",
		"child failing", "child recovered", "notice", "misuse"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// An Event describes a fact. An Event goes to Config.OnEvent, which is called on its own goroutine:
// serially, in order, but later than the fact.
//
// The hook may call any method of the Supervisor except Run. The hook should not block: supervision
// goes on, but up to 1024 events wait meanwhile and more are lost (see Missed). A Run about to
// return waits for the hook, a second at most. A panic or Goexit in the hook ends that call only,
// and a HookFault event follows.
type Event struct {
	Kind Kind
	// Supervisor is Config.Name.
	Supervisor string
	// Child is the child's name. Child is empty for Escalated, OwnFault, HookFault, Notice and
	// Misuse.
	Child string
	// Err is the reason, depending on Kind.
	Err error
	// Time is when the event happened.
	Time time.Time
	// Missed is the number of events lost before.
	Missed int
}

// String formats the event as a line for a log.
func (e Event) String() string {
	text := e.Supervisor
	if e.Child != "" {
		text += "/" + e.Child
	}
	text += ": " + e.Kind.String()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Missed > 0 {
		text += fmt.Sprintf(" (%d events lost before)", e.Missed)
	}
	return text
}

const (
	// maxPending bounds the values that wait for a hook, some 90 KB of events: see Event.
	maxPending = 1024
	// hookGrace is the longest wait of Flush for the hook.
	hookGrace = time.Second
)

// Mailbox calls a hook for values, serially and in order, on a goroutine that lives only while
// values wait. At most 1024 values wait, and further values are lost. Its methods may be called
// concurrently. A nil Mailbox drops all values.
type Mailbox[E any] struct {
	hook func(value E, missed int)
	died func(value E, reason error)

	// mu is a leaf: neither a lock nor user code is under it.
	mu struct {
		sync.Mutex
		pending []letter[E]
		missed  int
		// draining is set while a goroutine works on pending.
		draining bool
		// idle, if not nil, is to be closed when pending is empty.
		idle chan struct{}
	}
}

type letter[E any] struct {
	value  E
	missed int
}

// NewMailbox returns a Mailbox. missed is the number of values lost before the hook's. A panic or
// Goexit in the hook ends that call only. Then died, which must not panic, gets the value and the
// reason, on the goroutine that died.
func NewMailbox[E any](hook func(value E, missed int), died func(value E, reason error)) *Mailbox[E] {
	return &Mailbox[E]{hook: hook, died: died}
}

// NewEventMailbox returns a Mailbox for a hook like Config.OnEvent, nil for nil. On the supervisor's
// own goroutine a full pipe behind a logger would hold up restarts.
func NewEventMailbox(hook func(Event)) (mailbox *Mailbox[Event]) {
	if hook == nil {
		return nil
	}
	mailbox = NewMailbox(func(event Event, missed int) {
		event.Missed = missed
		hook(event)
	}, func(event Event, reason error) {
		// Otherwise a hook that always dies would never be done.
		if event.Kind != HookFault {
			mailbox.Post(Event{Kind: HookFault, Supervisor: event.Supervisor, Err: reason, Time: time.Now()})
		}
	})
	return mailbox
}

// Post appends a value. Post never blocks and never calls the hook itself.
func (m *Mailbox[E]) Post(value E) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.pending) >= maxPending {
		m.mu.missed++
		return
	}
	m.mu.pending = append(m.mu.pending, letter[E]{value, m.mu.missed})
	m.mu.missed = 0
	if !m.mu.draining {
		m.mu.draining = true
		m.drain()
	}
}

// drain starts the goroutine that calls the hook until nothing is pending. If the hook kills that
// goroutine, another continues with the next value.
func (m *Mailbox[E]) drain() {
	var current letter[E]
	spawn(seam.Seam{}, func() error {
		for {
			var ok bool
			if current, ok = m.next(); !ok {
				return nil
			}
			m.hook(current.value, current.missed)
		}
	}, func(reason error) {
		if reason == nil {
			return
		}
		m.died(current.value, reason)
		m.drain()
	})
}

// next takes the oldest value. If there is none, next ends the draining: the caller must return.
func (m *Mailbox[E]) next() (letter[E], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.pending) == 0 {
		m.mu.pending = nil
		m.mu.draining = false
		if m.mu.idle != nil {
			close(m.mu.idle)
			m.mu.idle = nil
		}
		return letter[E]{}, false
	}
	first := m.mu.pending[0]
	m.mu.pending[0] = letter[E]{}
	m.mu.pending = m.mu.pending[1:]
	return first, true
}

// Flush waits until the hook has seen every value, but no longer than a second.
func (m *Mailbox[E]) Flush() {
	if m == nil {
		return
	}
	m.mu.Lock()
	if !m.mu.draining {
		m.mu.Unlock()
		return
	}
	if m.mu.idle == nil {
		m.mu.idle = make(chan struct{})
	}
	idle := m.mu.idle
	m.mu.Unlock()

	limit := time.NewTimer(hookGrace)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	}
}
