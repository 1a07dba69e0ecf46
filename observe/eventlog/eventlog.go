// Package eventlog writes what an operator must know of limiters as records of log/slog:
// restarts, goroutines that were given up, saves that fail, outages.
//
//	log := eventlog.New(slog.Default())
//	limiter, err := engine.New[string](engine.Config{..., OnEvent: log.Engine})
//	healthy := log.Health("api", limiter) // call it where the program is asked whether it is healthy
//
// Records are limited, so that what happens over and over does not fill a disk. What says how
// something is from now on, as that saves fail, is written later if it was too much: the last
// word in the log is true. None has a key. LogEvents of module fleet writes the events of a fleet.
package eventlog

import (
	"context"
	"log/slog"
	"slices"
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
	news  news
}

// level bounds records.
type level struct {
	word atomic.Uint64 // of rate
	owed atomic.Int64  // records of topics that are pending: they come before any other
	left atomic.Uint64 // records left out since the last one
}

// New returns a Log that writes to the logger. nil is slog.Default.
func New(to *slog.Logger) *Log { return &Log{to: to} }

// Record writes a record unless too many were written, or the newest record of a topic is
// still to be written at that level. Programs use it for events of other kinds. For what says how something is from now on there is [Log.State].
func (l *Log) Record(at slog.Level, text string, attributes ...slog.Attr) {
	if l.enabled(at) {
		if level := l.level(at); level.owed.Load() > 0 || l.write(record{at, text, attributes}, 0) > 0 {
			level.left.Add(1)
		}
	}
}

// record is what is written.
type record struct {
	at         slog.Level
	text       string
	attributes []slog.Attr
}

func (l *Log) logger() *slog.Logger {
	if l.to == nil {
		return slog.Default()
	}
	return l.to
}

func (l *Log) enabled(at slog.Level) bool { return l.logger().Enabled(context.Background(), at) }

func (l *Log) level(at slog.Level) *level {
	if at >= slog.LevelError {
		return &l.fault
	}
	return &l.other
}

// write writes a record, with how many others about the same were left out before it. If too
// many were written, it returns after which time the record may be, and otherwise 0.
func (l *Log) write(r record, omitted uint64) (after time.Duration) {
	l.begun.Do(func() { l.epoch = time.Now() })
	left, after := l.level(r.at).may(policy.Instant(time.Since(l.epoch)) + 1)
	if after > 0 {
		return after
	}
	attributes := slices.Clip(r.attributes)
	if omitted > 0 {
		attributes = append(attributes, slog.Uint64("more_of_this", omitted))
	}
	if left > 0 {
		attributes = append(attributes, slog.Uint64("left_out", left))
	}
	l.logger().LogAttrs(context.Background(), r.at, r.text, attributes...)
	return 0
}

// may takes the right to write a record now, and returns how many were left out before it.
// Otherwise it returns after which time one may be written.
func (l *level) may(now policy.Instant) (left uint64, after time.Duration) {
	for {
		word := l.word.Load()
		next, d := rate.Take(word, now, 1, 0)
		if !d.Allowed {
			return 0, d.RetryAfter
		}
		if l.word.CompareAndSwap(word, next) {
			return l.left.Swap(0), 0
		}
	}
}

// Engine writes an event of an engine, for engine.Config.OnEvent. That an engine gives its
// goroutines up is an error, and so are a goroutine that does not end, and saves from when they
// begin to fail. That they succeed again is Info. A restart is a warning. What belongs to every
// start and end is of level Debug. The newest record of saves is always written in the end: see
// [Log.State].
func (l *Log) Engine(e engine.Event) {
	at, text := slog.LevelDebug, "ral: "+e.Kind.String()
	isState := false
	switch e.Kind {
	case supervisor.ChildFailing:
		at, text, isState = slog.LevelError, "ral: the work of a goroutine of the limiter fails", true
		if e.Child == "saver" {
			text = "ral: the state of the limiter is not saved"
		}
	case supervisor.ChildRecovered:
		at, text, isState = slog.LevelInfo, "ral: the work of a goroutine of the limiter succeeds again", true
		if e.Child == "saver" {
			text = "ral: the state of the limiter is saved again"
		}
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
	if isState {
		l.State(e.Supervisor+"/"+e.Child, at, text, attributes...)
		return
	}
	l.Record(at, text, attributes...)
}

// Health returns a function that returns the limiter's Health, and writes an error when it
// becomes one or another one, and Info when it is nil again. The program calls it from time to
// time, as where it is asked whether it is healthy. Any number of goroutines may; Health is
// called by one at a time, so that the records are in order. The newest is always written in
// the end: see [Log.State].
func (l *Log) Health(name string, limiter interface{ Health() error }) func() error {
	var mu sync.Mutex
	last := ""
	topic := new(byte) // of this function alone
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		err := limiter.Health()
		now := ""
		if err != nil {
			now = err.Error()
		}
		switch {
		case now == last:
		case err != nil:
			l.state(topic, record{slog.LevelError, "ral: the limiter is not healthy", []slog.Attr{slog.String("limit", name), slog.String("error", now)}})
		default:
			l.state(topic, record{slog.LevelInfo, "ral: the limiter is healthy again", []slog.Attr{slog.String("limit", name)}})
		}
		last = now
		return err
	}
}
