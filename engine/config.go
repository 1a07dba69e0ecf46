package engine

import (
	"fmt"
	"hash/maphash"
	"io"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// WhenFull selects what a new key meets when the table holds Config.MaxKeys.
type WhenFull int

const (
	// EvictLeastDebt gives up the key that will soonest owe nothing, and counts it as
	// forgiven if it still owed. Under a bucket that is a key of a flood. Under limits that
	// count in windows it is one whose window ends first, whatever it used. A new key may
	// wait for that, up to Config.OpenTimeout. The default.
	EvictLeastDebt WhenFull = iota
	// RefuseNew refuses new keys until others have left. RetryAfter is Config.Idle
	// then: a guess.
	RefuseNew
	// AdmitNew lets new keys pass without a record until others have left.
	AdmitNew
)

// WhenUnavailable selects the answer for a key that cannot be recorded, because the
// writer did not make room for it in time or is gone for good.
type WhenUnavailable int

const (
	// Admit lets the call pass unrecorded if the limit would allow it to a new key. The
	// default.
	Admit WhenUnavailable = iota
	// Refuse refuses the call. RetryAfter is Config.OpenTimeout then: a guess.
	Refuse
)

// The defaults of Config.
const (
	defaultName            = "ral"
	defaultIdle            = 5 * time.Minute
	defaultMaxKeys         = 1 << 20
	defaultOpenTimeout     = 10 * time.Millisecond
	defaultQueueDepth      = 1024
	defaultMaxWaiting      = 1024
	defaultMaxWaitingTotal = 1 << 16
	defaultRestarts        = 20
	defaultRestartPeriod   = 10 * time.Second
)

// Event is what Config.OnEvent is told: which goroutine of which engine started, died,
// was restarted or was given up, and why. Its String is a line for a log.
type Event = supervisor.Event

// Config is what an engine is made with. Policy is required. Every other field that is
// left zero takes its default. Negative values are refused.
type Config struct {
	// Name is the engine's name, in its errors, events and Stats, for programs that have
	// several. It is printable ASCII of at most 64 bytes. The default is "ral", which
	// errors leave out.
	Name string

	// Policy is the limit that holds for each key. Required. If it is a policy.Anchored,
	// New ties it to the wall clock as it is then, and so are all limits that come later.
	// A step of the wall clock after that has no effect on it.
	Policy policy.Policy

	// Idle is the time that a key stays in the table after it ceased to owe anything. A
	// key that owes stays, whatever Idle is, unless it is given up to make room. A
	// shorter time saves memory. A longer one saves opening keys again, which costs
	// about seven times as much as a call on a known key. The default is 5 minutes, the
	// least 1ns.
	Idle time.Duration

	// MaxKeys bounds how many keys the table holds, and so the memory. The default is
	// 1<<20. A key costs about 75 bytes, and its own content.
	MaxKeys int

	// WhenFull selects what a new key meets when the table holds MaxKeys:
	// EvictLeastDebt (default), RefuseNew or AdmitNew. While new keys keep coming to a
	// full table, EvictLeastDebt keeps one place in 1024 free for them, 64 at the most.
	WhenFull WhenFull

	// OpenTimeout bounds how long a call may wait for the writer, which only a call on a
	// new key ever does. The default is 10 ms, the least 1ns.
	OpenTimeout time.Duration

	// WhenUnavailable selects the answer for a key that cannot be recorded, because the
	// writer did not make room for it within OpenTimeout or is gone for good, or because
	// the engine is closed: Admit (default) or Refuse.
	WhenUnavailable WhenUnavailable

	// QueueDepth bounds how many commands may wait for the writer. The default is 1024,
	// the most 1<<20. A deeper queue takes larger bursts of new keys before the writer
	// has to search the nursery for them afterwards.
	QueueDepth int

	// MaxWaiting bounds how many calls may wait in line for one key. Further ones get
	// ErrCrowded. The default is 1024. Joining a line takes time for each call in
	// it. Being refused mostly does not.
	MaxWaiting int

	// MaxWaitingTotal bounds how many calls may wait in line for all keys together, and
	// is never exceeded. Further ones get ErrCrowded. The default is 65536, the least 1.
	// A waiting call holds a goroutine and some hundred bytes.
	MaxWaitingTotal int

	// Clock returns the time by which the engine decides, in nanoseconds from any
	// beginning: the time that it returns in New becomes instant 1, so set it before. One
	// that is set afterwards, to an earlier time or to years later, stands where no time
	// passes, and Health says so. If it goes backwards
	// no call gains units. After a jump forward and back, keys, new ones too, may be
	// refused for the length of the jump. Units that had drained before can be given back
	// then (Refund, Cancel), since by that clock they have not. If it is coarse, a window
	// of t admits what the limit allows in t and a tick, and a refused call may have to
	// wait a tick longer than it is told; docs/performance.md has what that saves.
	//
	// Any goroutine may call it, at any time: once for a decision, and for a call about
	// several keys or limits once for each look. The default is package time's monotonic
	// clock, read from the processor's counter where that can be trusted: see
	// PackageTime. The janitor's ticks and OpenTimeout go by package time in any case.
	Clock func() policy.Instant

	// PackageTime makes the engine read package time's clock for every decision. The
	// default is to read the processor's counter instead, which is cheaper for calls that
	// come often, on Linux for amd64 and arm64 if the kernel does so itself. An instant is
	// at most 800 ns behind package time then, and 200 ns ahead of it: a window of t
	// admits what the limit allows in t and 1 µs, and a refused call may have to wait 1 µs
	// longer than it is told. The error does not accumulate. If counter and package time
	// disagree, as after the machine was suspended, all engines of the process return to
	// package time. Elsewhere, and in a bubble of testing/synctest, the default is package
	// time. Stats.Clock is the clock in use. Clock takes precedence.
	PackageTime bool

	// Restarts bounds how often the writer and the janitor, together, may be restarted
	// within RestartPeriod. Past that the engine gives them up and degrades: see Health.
	// The defaults are 20 in 10 seconds.
	Restarts      int
	RestartPeriod time.Duration

	// Penalty blocks keys that go on calling although they are refused. The default blocks
	// none. Engine.Block blocks a key by itself.
	Penalty Penalty

	// NoRefusedKeys keeps no list of the keys that are refused most: see Engine.MostRefused. The
	// default keeps one, which takes some 75 KB from the first refusal on.
	NoRefusedKeys bool

	// State keeps the keys in a file, over restarts. The default keeps none.
	State State

	// OnEvent, if not nil, is told of starts, panics and restarts, and when saves begin to fail
	// (supervisor.ChildFailing) and succeed again (ChildRecovered). It is called on a
	// goroutine of its own, one event after the other, later than the fact. The events
	// are those of a supervisor with the engine's Name and the children "writer", "janitor"
	// and, with a State, "saver". Those of a supervisor with "/blocks" behind the name
	// are of blocked keys. Close waits up to a second for it, so it should not call Close itself.
	OnEvent func(Event)

	// OnMisfit, if not nil, is called once, with the first limit that PolicyFor or
	// TakeWith brought although it is of another family than Policy. Such a limit refuses
	// every call: log it. Stats.Misfits counts those calls. It is called on the goroutine
	// of the call, which it holds up, and must not panic.
	OnMisfit func(limit policy.Policy)

	// fault is called at named points of the engine's goroutines, for tests to
	// panic in.
	fault func(point string)
	seam  seam.Seam
	// last, if not nil, is what Close writes the last state to, for a simulation without files.
	last io.Writer
	// counter, if not nil, is read although the kernel may not trust the counter.
	counter *clock.Clock
	// wall, if not nil, is the wall clock by which a state is loaded.
	wall func() time.Time
	// seed makes the hashes of keys. The zero seed stands for one of the engine's own.
	seed maphash.Seed

	// Of an engine for the blocks of another one: see blocksEngine. firm is as in table.Options,
	// source is the other's clock, and refusals is as in cell.Options.
	firm     time.Duration
	source   *timeSource
	chosen   bool // there is a PolicyFor
	refusals *cell.Refusals
}

func init() {
	seam.Accept(func(c *Config, s seam.Seam) {
		c.seam, c.fault, c.last = s, s.Scheduler.Fault, s.Scheduler.Last()
	})
}

// withDefaults fills in what was left zero. This is the only place that does.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = defaultName
	}
	orDuration(&c.Idle, defaultIdle)
	orDuration(&c.OpenTimeout, defaultOpenTimeout)
	orDuration(&c.RestartPeriod, defaultRestartPeriod)
	orInt(&c.MaxKeys, defaultMaxKeys)
	orInt(&c.QueueDepth, defaultQueueDepth)
	orInt(&c.MaxWaiting, defaultMaxWaiting)
	orInt(&c.MaxWaitingTotal, defaultMaxWaitingTotal)
	orInt(&c.Restarts, defaultRestarts)
	c.Penalty = c.Penalty.withDefaults()
	c.State = c.State.withDefaults()
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
	case !goodName(c.Name):
		return bad("Name", fmt.Sprintf("%.80q", c.Name), "at most 64 bytes of printable ASCII")
	case shape.IsNil(c.Policy):
		return bad("Policy", "nil", "a policy, such as policy.Funnel returns")
	case c.Idle < 0:
		return bad("Idle", c.Idle, "a positive duration, or 0 for 5m")
	case c.MaxKeys < 0:
		return bad("MaxKeys", c.MaxKeys, "1 or more, or 0 for 1048576")
	case c.WhenFull < EvictLeastDebt || c.WhenFull > AdmitNew:
		return bad("WhenFull", int(c.WhenFull), "EvictLeastDebt, RefuseNew or AdmitNew")
	case c.OpenTimeout < 0:
		return bad("OpenTimeout", c.OpenTimeout, "a positive duration, or 0 for 10ms")
	case c.WhenUnavailable < Admit || c.WhenUnavailable > Refuse:
		return bad("WhenUnavailable", int(c.WhenUnavailable), "Admit or Refuse")
	case c.QueueDepth < 0 || c.QueueDepth > maxQueueDepth:
		return bad("QueueDepth", c.QueueDepth, "1 to 1048576, or 0 for 1024")
	case c.MaxWaiting < 0:
		return bad("MaxWaiting", c.MaxWaiting, "1 or more, or 0 for 1024")
	case c.MaxWaitingTotal < 0:
		return bad("MaxWaitingTotal", c.MaxWaitingTotal, "1 or more, or 0 for 65536")
	case c.Restarts < 0:
		return bad("Restarts", c.Restarts, "1 or more, or 0 for 20")
	case c.RestartPeriod < 0:
		return bad("RestartPeriod", c.RestartPeriod, "a positive duration, or 0 for 10s")
	}
	if err := c.penaltyFault(); err != nil {
		return err
	}
	return c.stateFault()
}

const longestName = 64

// goodName reports whether a name is printable ASCII and not too long.
func goodName(name string) bool {
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(name) <= longestName
}

// maxQueueDepth keeps the queue's memory, which is taken at once, below 64 MiB.
const maxQueueDepth = 1 << 20
