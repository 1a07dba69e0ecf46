package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/internal/seam"
)

const (
	// DefaultIntensity is OTP's: one restart per Period. It is not applied by
	// itself, because an Intensity of zero has a meaning of its own.
	DefaultIntensity = 1

	// DefaultPeriod is used when Config.Period is zero.
	DefaultPeriod = 5 * time.Second

	// DefaultShutdown is used when Child.Shutdown is zero.
	DefaultShutdown = 5 * time.Second

	// Forever, as Child.Shutdown, waits for the child however long it takes
	// (the largest Duration there is, 292 years). It is right for a nested
	// supervisor, which keeps to limits of its own; for anything else it gives
	// up the promise that Run ends.
	Forever time.Duration = math.MaxInt64
)

// A Strategy says which children are restarted when one of them has to be.
// The zero value is OneForOne.
type Strategy int

const (
	// OneForOne restarts the failed child alone.
	OneForOne Strategy = iota
	// OneForAll stops all the others, in reverse order, and starts all of them.
	OneForAll
	// RestForOne does so with the failed child and those started after it.
	RestForOne
)

// String returns OTP's name of the strategy.
func (s Strategy) String() string {
	return name(int(s), "Strategy", "one_for_one", "one_for_all", "rest_for_one")
}

// A Restart says after which ends a child is restarted. The zero value is
// Permanent.
type Restart int

const (
	// Permanent children are restarted whatever the reason.
	Permanent Restart = iota
	// Transient children are restarted after an error, a panic or a Goexit. One
	// that returned nil has finished; it is started again only together with
	// its group, under OneForAll and RestForOne, as in OTP.
	Transient
	// Temporary children are never restarted, not even together with their
	// group. One that ended, or was stopped for its group's sake, is removed
	// for the rest of the Run.
	Temporary
)

// String returns OTP's name of the restart type.
func (r Restart) String() string {
	return name(int(r), "Restart", "permanent", "transient", "temporary")
}

// A Child describes one goroutine to keep running. It is a value: New copies it.
type Child struct {
	// Name identifies the child in events and errors. It must not be empty, and
	// it must be unique within a supervisor.
	Name string

	// Init, if not nil, prepares the child. The next child is started only when
	// it has returned nil, and at most one Init of a supervisor is at work at a
	// time: one that takes long holds up the start of every other child. After
	// an Init that returned nil, Run is always called, even if the context was
	// cancelled meanwhile, so that Run may clean up what Init acquired. Both are
	// called on the same goroutine, with the same context.
	Init func(context.Context) error

	// Run does the child's work until it is done or its context is. It must not be
	// nil. The context carries the values of the context given to Supervisor.Run. It
	// is cancelled only in the child's own turn to stop, and when the child has
	// ended, never because that other context was.
	Run func(context.Context) error

	// Restart says after which ends the child is restarted; zero is Permanent.
	Restart Restart

	// Shutdown limits how long the supervisor waits for the child to end once
	// its context is cancelled. Zero means DefaultShutdown, and Forever means no
	// limit. A child that is late is abandoned: see Supervisor.Abandoned.
	Shutdown time.Duration

	// Exclusive says that two incarnations must never run side by side, as with
	// the single writer of some data. The replacement of an abandoned child is
	// started without delay by default. If the child is Exclusive it is not
	// started: the supervisor gives up with ErrAbandoned, and a later Run fails
	// with ErrStart and ErrAbandoned for as long as the abandoned one lives.
	Exclusive bool
}

// A Config holds what applies to a supervisor as a whole. The zero value is
// accepted: one-for-one, and no restart permitted.
type Config struct {
	// Name identifies the supervisor in events and errors; if empty it is
	// "supervisor".
	Name string

	// Strategy says which children are restarted with a failed one; zero is
	// OneForOne.
	Strategy Strategy

	// Intensity is the number of restarts permitted within Period; one more makes the
	// supervisor give up with ErrIntensity. Zero means zero, as in OTP: the first
	// failure that asks for a restart ends the supervisor. To get OTP's default, say
	// DefaultIntensity. A restart counts once, however many children it restarts; a
	// restart whose Init fails asks for another; and faults of the supervisor's own
	// bookkeeping count as well.
	Intensity int

	// Period is the length of the sliding window of Intensity. Two restarts that
	// lie exactly a Period apart are both within it. Zero means DefaultPeriod.
	Period time.Duration

	// OnEvent, if not nil, is told what happens; see Event for the contract.
	OnEvent func(Event)

	// Fault, if not nil, is called at the points of the supervisor's own
	// bookkeeping that Points lists, on the goroutine that does it. It is for
	// tests only: a panic or Goexit in it simulates a bug at that point. It must
	// not block.
	Fault func(point string)

	seam seam.Seam
}

func init() { seam.Accept(func(cfg *Config, s seam.Seam) { cfg.seam = s }) }

// withDefaults fills in what zero stands for. It does not validate.
func (cfg Config) withDefaults() Config {
	if cfg.Name == "" {
		cfg.Name = "supervisor"
	}
	if cfg.Period == 0 {
		cfg.Period = DefaultPeriod
	}
	return cfg
}

// withDefaults fills in what zero stands for. It does not validate.
func (c Child) withDefaults() Child {
	if c.Shutdown == 0 {
		c.Shutdown = DefaultShutdown
	}
	return c
}

// validate returns all that is wrong, one line each, or nil.
func validate(cfg Config, children []Child) error {
	var errs []error
	reject := func(field string, value any, accepted string) {
		errs = append(errs, fmt.Errorf("%w: %s is %v, want %s", ErrConfig, field, value, accepted))
	}
	if cfg.Strategy < OneForOne || cfg.Strategy > RestForOne {
		reject("Config.Strategy", int(cfg.Strategy), "OneForOne, OneForAll or RestForOne")
	}
	if cfg.Intensity < 0 {
		reject("Config.Intensity", cfg.Intensity, "0 (no restart permitted) or more")
	}
	if cfg.Period < 0 {
		reject("Config.Period", cfg.Period, "a positive duration, or 0 for DefaultPeriod")
	}
	seen := make(map[string]int, len(children))
	for i, c := range children {
		field := func(f string) string { return fmt.Sprintf("child %d (%q): %s", i, c.Name, f) }
		if first, dup := seen[c.Name]; c.Name == "" {
			reject(field("Name"), `""`, "a non-empty name")
		} else if dup {
			reject(field("Name"), fmt.Sprintf("%q", c.Name),
				fmt.Sprintf("a name other than that of child %d", first))
		} else {
			seen[c.Name] = i
		}
		if c.Run == nil {
			reject(field("Run"), "nil", "a function")
		}
		if c.Restart < Permanent || c.Restart > Temporary {
			reject(field("Restart"), int(c.Restart), "Permanent, Transient or Temporary")
		}
		if c.Shutdown < 0 {
			reject(field("Shutdown"), c.Shutdown, "a positive duration, 0 for DefaultShutdown, or Forever")
		}
	}
	return errors.Join(errs...)
}
