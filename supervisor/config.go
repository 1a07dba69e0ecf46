package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

const (
	// DefaultPeriod is used when Config.Period is zero.
	DefaultPeriod = 5 * time.Second

	// DefaultShutdown is used when Child.Shutdown is zero.
	DefaultShutdown = 5 * time.Second
)

// A Child describes one goroutine to keep running. It is a value: New copies it.
type Child struct {
	// Name identifies the child in events and errors. It must not be empty, and
	// it must be unique within a supervisor.
	Name string

	// Run does the child's work until it is done or its context is. It must not be
	// nil. The context carries the values of the context given to Supervisor.Run. It
	// is cancelled only in the child's own turn to stop, and when the child has
	// ended, never because that other context was.
	Run func(context.Context) error

	// Shutdown limits how long the supervisor waits for the child to end once
	// its context is cancelled. Zero means DefaultShutdown. A child that is late is
	// abandoned: see Supervisor.Abandoned.
	Shutdown time.Duration
}

// A Config holds what applies to a supervisor as a whole. The zero value is
// accepted: no restart is permitted.
type Config struct {
	// Name identifies the supervisor in events and errors; if empty it is
	// "supervisor".
	Name string

	// Intensity is the number of restarts permitted within Period; one more makes the
	// supervisor give up with ErrIntensity. Zero means zero, as in OTP: the first
	// failure that asks for a restart ends the supervisor. OTP's default is 1. Faults of
	// the supervisor's own bookkeeping count as well.
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
		if c.Shutdown < 0 {
			reject(field("Shutdown"), c.Shutdown, "a positive duration, or 0 for DefaultShutdown")
		}
	}
	return errors.Join(errs...)
}
