package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
)

const (
	// DefaultPeriod is used if Config.Period is 0.
	DefaultPeriod = 5 * time.Second

	// DefaultShutdown is used if Child.Shutdown is 0.
	DefaultShutdown = 5 * time.Second
)

// A Child describes a goroutine to keep running. New copies it.
type Child struct {
	// Name identifies the child in events and errors. The name must be unique and not empty.
	Name string

	// Run does the child's work until it is done or its context is. Run must not be nil. The
	// context has the values of Supervisor.Run's context, but not its cancellation: the context is
	// cancelled in the child's own turn to stop, and when the child has ended.
	Run func(context.Context) error

	// Shutdown limits the wait for the child's end once its context is cancelled. Zero means
	// DefaultShutdown. A late child is abandoned: see Supervisor.Abandoned.
	Shutdown time.Duration
}

// A Config configures a supervisor. The zero value permits no restart.
type Config struct {
	// Name identifies the supervisor in events and errors. Empty means "supervisor".
	Name string

	// Intensity is the number of restarts permitted within Period; the next makes the supervisor
	// give up with ErrIntensity. Zero permits none, as in OTP, where the default is 1. Faults of
	// the supervisor's own bookkeeping count too.
	Intensity int

	// Period is the length of Intensity's sliding window. Two restarts exactly a Period apart are
	// both within it. Zero means DefaultPeriod.
	Period time.Duration

	// OnEvent, if not nil, receives the events: see Event.
	OnEvent func(Event)

	// Fault, if not nil, is called at each of Points, on the goroutine of the supervisor's
	// bookkeeping. In tests a panic or Goexit in it simulates a bug there. Fault must not block.
	Fault func(point string)

	seam seam.Seam
}

func init() { seam.Accept(func(cfg *Config, points seam.Seam) { cfg.seam = points }) }

func (cfg Config) withDefaults() Config {
	if cfg.Name == "" {
		cfg.Name = "supervisor"
	}
	if cfg.Period == 0 {
		cfg.Period = DefaultPeriod
	}
	return cfg
}

func (c Child) withDefaults() Child {
	if c.Shutdown == 0 {
		c.Shutdown = DefaultShutdown
	}
	return c
}

// validate returns all errors, or nil.
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
	for i, child := range children {
		field := func(text string) string { return fmt.Sprintf("child %d (%q): %s", i, child.Name, text) }
		if first, dup := seen[child.Name]; child.Name == "" {
			reject(field("Name"), `""`, "a non-empty name")
		} else if dup {
			reject(field("Name"), fmt.Sprintf("%q", child.Name),
				fmt.Sprintf("a name that child %d does not have", first))
		} else {
			seen[child.Name] = i
		}
		if child.Run == nil {
			reject(field("Run"), "nil", "a function")
		}
		if child.Shutdown < 0 {
			reject(field("Shutdown"), child.Shutdown, "a positive duration, or 0 for DefaultShutdown")
		}
	}
	return errors.Join(errs...)
}
