package engine

import (
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// What a new key meets when the table is full, for Config.WhenFull.
const (
	EvictLeastDebt = cell.EvictLeastDebt
	RefuseNew      = cell.RefuseNew
	AdmitNew       = cell.AdmitNew
)

// What a key that cannot be recorded is answered, for Config.WhenUnavailable.
const (
	Admit  = cell.Admit
	Refuse = cell.Refuse
)

// The defaults of Config.
const (
	DefaultIdle          = 5 * time.Minute
	DefaultMaxKeys       = 1 << 20
	DefaultOpenTimeout   = 10 * time.Millisecond
	DefaultQueueDepth    = 1024
	DefaultMaxWaiting    = 1024
	DefaultRestarts      = 20
	DefaultRestartPeriod = 10 * time.Second
)

// Config is what an engine is made with. Policy is required; every other field
// that is left zero takes its default. Negative values are refused.
type Config struct {
	// Policy is the limit that holds for each key. Required.
	Policy policy.Policy

	// Idle is how long a key stays in the table after it has ceased to owe anything. A
	// key that owes stays, whatever Idle is, unless it is given up to make room. Shorter
	// saves memory; longer saves opening keys again, which costs about seven times as
	// much as a call on a known one. The default is 5 minutes, the least 1ns.
	Idle time.Duration

	// MaxKeys bounds how many keys the table holds, and so the memory. The
	// default is 1<<20. A key costs about 75 bytes besides its own content.
	MaxKeys int

	// WhenFull says what a new key meets when the table holds MaxKeys:
	// EvictLeastDebt (default), RefuseNew or AdmitNew. While new keys keep coming to
	// a full table, EvictLeastDebt keeps one place in 1024 free for them, 64 at the
	// most.
	WhenFull cell.WhenFull

	// Admission says who writes a key's word: cell.Exact (default), or
	// cell.Queued, which over-admits and is there for comparison.
	Admission cell.Admission

	// OpenTimeout bounds how long a call may wait for the writer, which only a
	// call on a new key ever does, or one in Queued mode. The default is 10 ms,
	// the least 1ns.
	OpenTimeout time.Duration

	// WhenUnavailable says how to answer for a key that cannot be recorded,
	// because the writer did not make room for it within OpenTimeout or is gone
	// for good, or because the engine is closed: Admit (default) or Refuse.
	WhenUnavailable cell.WhenUnavailable

	// QueueDepth is how many commands may wait for the writer. The default is
	// 1024. Deeper lets larger bursts of new keys pass without the writer
	// having to search the nursery for them afterwards.
	QueueDepth int

	// MaxWaiting is how many calls of Wait may wait for one key; further ones get
	// cell.ErrCrowded. The default is 1024. Joining a line looks at all who are in it.
	MaxWaiting int

	// Clock gives the time by which the engine decides, in nanoseconds from any
	// beginning: what it says in New becomes instant 1. Where it goes backwards nobody
	// who takes gains by it: a jump forward that is taken back may lock keys out, new
	// ones too, for as long as it was. Units that had drained before can be given back
	// then (Refund, Cancel), as by that clock they have not. Where it is coarse, a window
	// of t lets pass what the limit allows in t and a tick, and a refused call may have
	// to wait a tick longer than it is told; docs/performance.md has what that saves. Any
	// goroutine may call it, at any time, once for a decision, and as often as they look
	// for calls about several keys or limits. The default is package time's monotonic
	// clock.
	//
	// The janitor's ticks and OpenTimeout go by package time in any case.
	Clock func() policy.Instant

	// Restarts within RestartPeriod is how often the writer and the janitor,
	// together, may be restarted before the engine gives them up and degrades:
	// see Health. The defaults are 20 in 10 seconds.
	Restarts      int
	RestartPeriod time.Duration

	// OnEvent, if not nil, is told of starts, panics and restarts. See
	// supervisor.Event for the contract; the events are those of a supervisor
	// named "ral" with the children "writer" and "janitor". Close waits up to a
	// second for it, so that it should not call Close itself.
	OnEvent func(supervisor.Event)

	// fault is called at named points of the engine's goroutines, for tests to
	// panic in.
	fault func(point string)
	// seam is given by simulations.
	seam seam.Scheduler
}

func init() {
	seam.Accept(func(c *Config, s seam.Scheduler) { c.seam, c.fault = s, s.Fault })
}

// withDefaults fills in what was left zero. This is the only place that does.
func (c Config) withDefaults() Config {
	orDuration(&c.Idle, DefaultIdle)
	orDuration(&c.OpenTimeout, DefaultOpenTimeout)
	orDuration(&c.RestartPeriod, DefaultRestartPeriod)
	orInt(&c.MaxKeys, DefaultMaxKeys)
	orInt(&c.QueueDepth, DefaultQueueDepth)
	orInt(&c.MaxWaiting, DefaultMaxWaiting)
	orInt(&c.Restarts, DefaultRestarts)
	return c
}

func orDuration(d *time.Duration, other time.Duration) {
	if *d == 0 {
		*d = other
	}
}

func orInt(n *int, other int) {
	if *n == 0 {
		*n = other
	}
}

// validate returns a *policy.FieldError for the first field that is not
// acceptable. It expects the defaults to be filled in.
func (c Config) validate() error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "engine.Config", Field: field, Value: value, Want: want}
	}
	switch {
	case !policy.Given(c.Policy):
		return bad("Policy", "nil", "a policy, such as policy.Funnel returns")
	case c.Idle < 0:
		return bad("Idle", c.Idle, "a positive duration, or 0 for 5m")
	case c.MaxKeys < 0:
		return bad("MaxKeys", c.MaxKeys, "1 or more, or 0 for 1048576")
	case c.WhenFull < EvictLeastDebt || c.WhenFull > AdmitNew:
		return bad("WhenFull", int(c.WhenFull), "EvictLeastDebt, RefuseNew or AdmitNew")
	case c.Admission < cell.Exact || c.Admission > cell.Queued:
		return bad("Admission", int(c.Admission), "cell.Exact or cell.Queued")
	case c.OpenTimeout < 0:
		return bad("OpenTimeout", c.OpenTimeout, "a positive duration, or 0 for 10ms")
	case c.WhenUnavailable < Admit || c.WhenUnavailable > Refuse:
		return bad("WhenUnavailable", int(c.WhenUnavailable), "Admit or Refuse")
	case c.QueueDepth < 0 || c.QueueDepth > maxQueueDepth:
		return bad("QueueDepth", c.QueueDepth, "1 to 1048576, or 0 for 1024")
	case c.MaxWaiting < 0:
		return bad("MaxWaiting", c.MaxWaiting, "1 or more, or 0 for 1024")
	case c.Restarts < 0:
		return bad("Restarts", c.Restarts, "1 or more, or 0 for 20")
	case c.RestartPeriod < 0:
		return bad("RestartPeriod", c.RestartPeriod, "a positive duration, or 0 for 10s")
	}
	return nil
}

// maxQueueDepth keeps the queue's memory, which is taken at once, below 64 MiB.
const maxQueueDepth = 1 << 20
