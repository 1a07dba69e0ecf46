// Package eventlog writes what an operator must know of limiters as records of log/slog:
// restarts, goroutines that were given up, saves that fail, outages.
//
//	log := eventlog.New(slog.Default())
//	limiter, err := engine.New[string](engine.Config{..., OnEvent: log.Engine})
//	healthy := log.Health("api", limiter) // call it where the program is asked whether it is healthy
//
// Records are limited, so that what happens over and over does not fill a disk. None has a
// key. LogEvents of module fleet writes the events of a fleet.
package eventlog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// rate bounds the records of a level: 10 at once, and 10 a minute in the long run.
var rate = policy.Must(policy.Funnel(10, 10, time.Minute))

// Log writes records at a bounded rate: of errors 10 at once and 10 a minute in the long
// run, and as many of all others together. The next record tells how many were left out,
// as left_out. New makes a Log; the zero Log writes to slog.Default. Any number of
// goroutines may call its methods. It must not be copied after its first use.
type Log struct {
	to    *slog.Logger
	begun sync.Once
	epoch time.Time
	other level
	fault level // of errors, which a flood of others is not to hide
}

// level bounds records.
type level struct {
	word atomic.Uint64 // of rate
	left atomic.Uint64 // records left out since the last one
}

// New returns a Log that writes to the logger. nil is slog.Default.
func New(to *slog.Logger) *Log { return &Log{to: to} }

// Record writes a record unless too many were written. Programs use it for events of other
// kinds, as those of a fleet.
func (l *Log) Record(at slog.Level, text string, attributes ...slog.Attr) {
	to := l.to
	if to == nil {
		to = slog.Default()
	}
	if !to.Enabled(context.Background(), at) {
		return
	}
	l.begun.Do(func() { l.epoch = time.Now() })
	of := &l.other
	if at >= slog.LevelError {
		of = &l.fault
	}
	left, ok := of.may(policy.Instant(time.Since(l.epoch)) + 1)
	if !ok {
		return
	}
	if left > 0 {
		attributes = append(attributes, slog.Uint64("left_out", left))
	}
	to.LogAttrs(context.Background(), at, text, attributes...)
}

// may reports whether a record may be written now, and how many were left out before it.
func (l *level) may(now policy.Instant) (left uint64, ok bool) {
	for {
		word := l.word.Load()
		next, d := rate.Take(word, now, 1, 0)
		if !d.Allowed {
			l.left.Add(1)
			return 0, false
		}
		if l.word.CompareAndSwap(word, next) {
			return l.left.Swap(0), true
		}
	}
}

// Engine writes an event of an engine, for engine.Config.OnEvent. That an engine gives its
// goroutines up is an error, and so is a goroutine that does not end. A restart is a
// warning. What belongs to every start and end is of level Debug.
func (l *Log) Engine(e engine.Event) {
	at, text := slog.LevelDebug, "ral: "+e.Kind.String()
	switch e.Kind {
	case supervisor.ChildRestarting:
		at, text = slog.LevelWarn, "ral: a goroutine of the limiter is restarted"
	case supervisor.Escalated:
		at, text = slog.LevelError, "ral: the limiter is degraded: it records no new key from now on"
	case supervisor.ChildAbandoned:
		at, text = slog.LevelError, "ral: a goroutine of the limiter does not end"
	case supervisor.OwnFault, supervisor.HookFault:
		at = slog.LevelError
	case supervisor.AbandonedEnded:
		at = slog.LevelInfo
	}
	attributes := []slog.Attr{slog.String("limit", e.Supervisor)}
	if e.Child != "" {
		attributes = append(attributes, slog.String("goroutine", e.Child))
	}
	if e.Err != nil {
		attributes = append(attributes, slog.String("error", e.Err.Error()))
	}
	if e.Missed > 0 {
		attributes = append(attributes, slog.Int("missed", e.Missed))
	}
	l.Record(at, text, attributes...)
}

// Health returns a function that returns the limiter's Health, and writes an error when it
// becomes one or another one, and Info when it is nil again. So it also writes what is no
// event, such as saves that fail. The program calls it from time to time, as where it is
// asked whether it is healthy. Any number of goroutines may.
func (l *Log) Health(name string, limiter interface{ Health() error }) func() error {
	var mu sync.Mutex
	last := ""
	return func() error {
		err := limiter.Health()
		now := ""
		if err != nil {
			now = err.Error()
		}
		mu.Lock()
		changed := now != last
		last = now
		mu.Unlock()
		switch {
		case !changed:
		case err != nil:
			l.Record(slog.LevelError, "ral: the limiter is not healthy", slog.String("limit", name), slog.String("error", now))
		default:
			l.Record(slog.LevelInfo, "ral: the limiter is healthy again", slog.String("limit", name))
		}
		return err
	}
}
