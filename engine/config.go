package engine

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// WhenFull selects how a new key is treated when the table holds Config.MaxKeys.
type WhenFull int

const (
	// EvictLeastDebt, the default, evicts the key that will soonest owe nothing, and counts it as
	// forgiven if it still owed. Under a bucket a flood evicts its own keys. Under limits that
	// count in windows, the key whose window ends first is evicted, whatever it used. A new key may
	// wait for room, up to Config.OpenTimeout. Under policy.InFlight no key with units in use is evicted:
	// while all keys have some, new keys are refused as by RefuseNew.
	EvictLeastDebt WhenFull = iota
	// RefuseNew refuses new keys until others have left. RetryAfter is then a guess, Config.Idle.
	RefuseNew
	// AdmitNew admits new keys unrecorded until others have left.
	AdmitNew
)

// WhenUnavailable selects the answer for a key that cannot be recorded: see Config.WhenUnavailable.
type WhenUnavailable int

const (
	// Admit, the default, admits the call unrecorded if the limit would allow it to a new key.
	Admit WhenUnavailable = iota
	// Refuse refuses the call. RetryAfter is then a guess, Config.OpenTimeout.
	Refuse
)

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

// Event tells of a start, death, restart or end of a goroutine. Its String is a line for a log.
type Event = supervisor.Event

// Config configures an engine. Policy is required; other zero fields take defaults. Negative values
// are refused.
type Config struct {
	// Name is the engine's name in errors, events and Stats: printable ASCII, at most 64 bytes. The
	// default is "ral", which errors leave out.
	Name string

	// Policy is the limit of each key. Required. Limits by the wall clock (policy.Anchored), also
	// those set later, go by the wall clock as New read it: a later step of the wall clock has no
	// effect.
	Policy policy.Policy

	// Idle is how long a key stays in the table when none of its units count any more. A key with
	// units that still count leaves only to make room. A shorter Idle saves memory, but the next
	// call on a removed key costs about seven times as much. The default is 5 minutes, the least
	// 1ns.
	Idle time.Duration

	// MaxKeys bounds the keys in the table. A key takes about 75 bytes and its own content. Under a
	// policy.Funnel or Bursty, each take of up to min(4,096, MaxKeys) keys that may be given back
	// adds about 56 bytes, at most 14 KB a key, until its Reservation, Outcome or Grant is collected.
	// The default is 1<<20.
	MaxKeys int

	// WhenFull selects how a new key is treated when the table holds MaxKeys. EvictLeastDebt, the
	// default, keeps one place in 1024 free, at most 64, while new keys come to a full table.
	WhenFull WhenFull

	// OpenTimeout bounds how long a call on a new key waits for room in a full table. The default
	// is 10 ms, the least 1ns.
	OpenTimeout time.Duration

	// WhenUnavailable selects the answer for a key that cannot be recorded: the writer made no room
	// within OpenTimeout or is gone, or the engine is closed. Admit (default) or Refuse.
	WhenUnavailable WhenUnavailable

	// QueueDepth bounds the commands that wait for the writer, such as one for each new key. The
	// default is 1024, the most 1<<20. After a larger burst of new keys the writer has to search
	// for them.
	QueueDepth int

	// MaxWaiting bounds the calls in line for one key; further calls get ErrCrowded. The default is
	// 1024. Joining a line takes time for each call in it; being refused mostly does not.
	MaxWaiting int

	// MaxWaitingTotal bounds the calls in line for all keys, exactly; further calls get ErrCrowded.
	// The default is 65536, the least 1. A waiting call holds a goroutine and some hundred bytes.
	MaxWaitingTotal int

	// Clock returns the time by which the engine decides, in nanoseconds from any beginning. Clock
	// must be safe for concurrent use. A decision calls it once; a call on several keys or limits
	// calls it each time that it looks at them. The default is package time's monotonic clock: see
	// PackageTime. The janitor's ticks and OpenTimeout always use package time. So do the pauses of
	// calls that wait: Wait sleeps for as long as its turn is ahead by Clock. To test code that
	// waits, run it under testing/synctest instead.
	//
	// The time that Clock returns in New becomes instant 1. While Clock returns an earlier time, or
	// one more than 9 years later, time may stand still, and Health returns an error. If Clock goes
	// backwards no call gains units. After a jump forward and back, keys may be refused for the
	// length of the jump, new keys too. Refund and Cancel can then give back units that had
	// drained. With a coarse clock, a window of length t admits as much as the limit allows in t
	// plus a tick, and a refused call may have to wait a tick longer than RetryAfter: see
	// docs/experiments.md.
	Clock func() policy.Instant

	// PackageTime makes the engine read package time's clock for every decision. The default reads
	// the processor's counter, which is cheaper for frequent calls, on Linux for amd64 and arm64 if
	// the kernel does so itself. Elsewhere, and in a bubble of testing/synctest, it is package
	// time. The counter is at most 800 ns behind package time or 200 ns ahead, and the error does
	// not accumulate. So a window of length t admits as much as the limit allows in t plus 1 µs,
	// and a refused call may have to wait 1 µs longer than RetryAfter. If counter and package time
	// disagree, as after the machine was suspended, all engines of the process return to package
	// time. Stats.Clock is the clock in use. Clock takes precedence.
	PackageTime bool

	// Restarts bounds the restarts of the writer and the janitor together within RestartPeriod.
	// Past that the engine degrades: see Health. The defaults are 20 in 10 seconds.
	Restarts      int
	RestartPeriod time.Duration

	// Penalty blocks keys that go on calling although they are refused. The default blocks none.
	Penalty Penalty

	// NoRefusedKeys disables Engine.MostRefused, whose list takes some 75 KB once a call is
	// refused.
	NoRefusedKeys bool

	// State keeps the keys in a file, over restarts. The default keeps none.
	State State

	// OnEvent receives starts, panics and restarts, the beginning and end of failing saves
	// (supervisor.ChildFailing, ChildRecovered), and warnings (see WarnAt). OnEvent runs on its own
	// goroutine, one event after the other, a little later. An event has the engine's Name, with
	// "/blocks" added for the goroutines of blocked keys, and the Child "writer", "janitor",
	// "saver" or "census". Close waits up to a second for OnEvent, so OnEvent must not call Close
	// itself.
	//
	// nil writes to slog.Default if the engine degrades (see Health), and when saves begin to fail
	// or succeed again, and nothing else.
	OnEvent func(Event)

	// OnMisfit, if not nil, is called once, with the first limit of PolicyFor or TakeWith that is
	// of another family than Policy. Log it: such a limit refuses every call. OnMisfit delays the
	// call on its goroutine, and must not panic.
	OnMisfit func(limit policy.Policy)

	// WarnAt has the shares of a key's limit, such as 0.8 and 0.95, at which a key is warned of: see
	// OnWarn, LatestWarnings and Stats.Warnings. Each is above 0 and below 1 and above the one
	// before; at most 8. The default warns of none, at no cost. OnEvent receives each warning as a
	// supervisor.Notice, with a hash of the key that cannot be computed outside of this process.
	WarnAt []float64

	// fault is called at named points, for tests to panic there.
	fault func(point string)
	seam  seam.Seam
	// last is for the last state at Close, in a simulation without files.
	last io.Writer
	// counter is read even if the kernel does not trust it.
	counter *clock.Clock
	// wall is for loading a state.
	wall func() time.Time
	// uncounted leaves KeysByUse zero, for tests whose PolicyFor is not for concurrent use.
	uncounted bool
	// seed is the seed of the hashes of keys, or zero for a random seed.
	seed maphash.Seed

	// For a blocksEngine: firm as in table.Options, source is the clock of the engine that it
	// serves, refusals as in cell.Options.
	firm   time.Duration
	source *timeSource
	// chosen means that there is a PolicyFor.
	chosen   bool
	refusals *cell.Refusals
}

func init() {
	seam.Accept(func(config *Config, points seam.Seam) {
		config.seam, config.fault, config.last = points, points.Scheduler.Fault, points.Scheduler.Last()
	})
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, defaultName)
	c.Idle = cmp.Or(c.Idle, defaultIdle)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, defaultOpenTimeout)
	c.RestartPeriod = cmp.Or(c.RestartPeriod, defaultRestartPeriod)
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMaxKeys)
	c.QueueDepth = cmp.Or(c.QueueDepth, defaultQueueDepth)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, defaultMaxWaiting)
	c.MaxWaitingTotal = cmp.Or(c.MaxWaitingTotal, defaultMaxWaitingTotal)
	c.Restarts = cmp.Or(c.Restarts, defaultRestarts)
	c.Penalty = c.Penalty.withDefaults()
	c.State = c.State.withDefaults()
	c.WarnAt = slices.Clone(c.WarnAt)
	return c
}

// forBlocks returns the configuration of the blocksEngine of an engine.
func (c Config) forBlocks() Config {
	rule := c.Penalty.rule()
	return Config{
		Name:            c.Name + "/blocks",
		Policy:          rule,
		Idle:            c.Idle,
		MaxKeys:         c.MaxKeys,
		OpenTimeout:     c.OpenTimeout,
		WhenUnavailable: Refuse,
		QueueDepth:      c.QueueDepth,
		MaxWaiting:      1,
		MaxWaitingTotal: 1,
		Restarts:        c.Restarts,
		RestartPeriod:   c.RestartPeriod,
		OnEvent:         c.OnEvent,
		NoRefusedKeys:   true,
		fault:           c.fault,
		seam:            c.seam,
		seed:            c.seed,
		firm:            rule.Firm(),
	}
}

func (c Config) validate() error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "engine.Config", Field: field, Value: value, Want: want}
	}
	switch {
	case !shape.IsName(c.Name):
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
	if err := warn.Shares(c.WarnAt).Check("engine.Config", "WarnAt"); err != nil {
		return err
	}
	return c.stateFault()
}

// maxQueueDepth keeps the queue's memory, allocated at once, below 64 MiB.
const maxQueueDepth = 1 << 20

// namedBy adds Config.Name to an error, unless the name is the default.
func namedBy(name string, err error) error {
	if err == nil || name == defaultName {
		return err
	}
	return fmt.Errorf("engine %q: %w", name, err)
}
