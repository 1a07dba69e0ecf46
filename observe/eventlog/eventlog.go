// Package eventlog logs events of limiters that operators must know as records of log/slog:
// restarts, abandoned goroutines, failing saves, outages.
//
//	log := eventlog.New(slog.Default())
//	limiter, err := engine.New[string](engine.Config{..., OnEvent: log.Engine})
//	healthy := log.Health("api", limiter) // call it where the program is asked whether it is healthy
//
// Records are limited, so that repeated events do not fill a disk. A record of a lasting state,
// such as failing saves, is delayed instead of dropped: the log's last word is true. No record has
// a key. LogEvents of module fleet logs a fleet's events.
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
	"github.com/ral-limiter/ral/single"
	"github.com/ral-limiter/ral/supervisor"
)

// Log writes at most 10 errors at once and 10 a minute in the long run, and as many other records.
// The next record tells how many were left out, as left_out. New makes a Log; the zero Log writes
// to slog.Default. A Log is safe for concurrent use, and must not be copied after its first use.
type Log struct {
	to    *slog.Logger
	begun sync.Once
	other level
	// fault is the level of errors, which other floods must not hide.
	fault level
	news  news
}

type level struct {
	// rate bounds the records. begin makes it.
	rate *single.Limiter
	// owed counts the pending records of topics, which precede all others.
	owed atomic.Int64
	// left counts the records left out since the last.
	left atomic.Uint64
}

// New returns a Log that writes to a logger, nil for slog.Default.
func New(to *slog.Logger) *Log { return &Log{to: to} }

// Record writes a record of any event, unless the rate is exceeded or a topic's record is pending
// at its level. Use [Log.State] for lasting states.
func (l *Log) Record(at slog.Level, text string, attributes ...slog.Attr) {
	if l.enabled(at) {
		if level := l.level(at); level.owed.Load() > 0 || l.write(record{at, text, attributes}, 0) > 0 {
			level.left.Add(1)
		}
	}
}

type record struct {
	level      slog.Level
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

// write writes a record with the omitted of its topic, or returns the time until the rate admits
// it.
func (l *Log) write(record record, omitted uint64) (after time.Duration) {
	l.begun.Do(l.begin)
	level := l.level(record.level)
	if decision := level.rate.Take(1); !decision.Allowed {
		return decision.RetryAfter
	}
	left := level.left.Swap(0)
	attributes := slices.Clip(record.attributes)
	if omitted > 0 {
		attributes = append(attributes, slog.Uint64("more_of_this", omitted))
	}
	if left > 0 {
		attributes = append(attributes, slog.Uint64("left_out", left))
	}
	l.logger().LogAttrs(context.Background(), record.level, record.text, attributes...)
	return 0
}

func (l *Log) begin() {
	for _, level := range []*level{&l.other, &l.fault} {
		level.rate = single.MustNew(policy.Funnel(10, 10, time.Minute))
	}
}

// Engine writes an event of an engine, for engine.Config.OnEvent. Errors are an engine that gives
// up its goroutines, a goroutine that does not end, and saves when they begin to fail; their
// recovery is Info. A restart, a key that passes a share of engine.Config.WarnAt, and units in use that
// are not released in time are warnings. Every start and end is Debug. The newest record about saves is always written in the end: see
// [Log.State].
func (l *Log) Engine(event engine.Event) {
	level, text, reason := slog.LevelDebug, "ral: "+event.Kind.String(), "error"
	isState := false
	switch event.Kind {
	case supervisor.ChildFailing:
		level, text, isState = slog.LevelError, "ral: the work of a goroutine of the limiter fails", true
		if event.Child == "saver" {
			text = "ral: the state of the limiter is not saved"
		}
	case supervisor.ChildRecovered:
		level, text, isState = slog.LevelInfo, "ral: the work of a goroutine of the limiter succeeds again", true
		if event.Child == "saver" {
			text = "ral: the state of the limiter is saved again"
		}
	case supervisor.ChildRestarting:
		level, text = slog.LevelWarn, "ral: a goroutine of the limiter is restarted"
	case supervisor.Escalated:
		level, text = slog.LevelError, "ral: the limiter is degraded: it records no new key from now on"
	case supervisor.ChildAbandoned:
		level, text = slog.LevelError, "ral: a goroutine of the limiter does not end"
	case supervisor.OwnFault, supervisor.HookFault:
		level = slog.LevelError
	case supervisor.Notice:
		level, text, reason = slog.LevelWarn, "ral: a key has passed a share of its limit", "warning"
	case supervisor.Misuse:
		level, text, reason = slog.LevelWarn, "ral: units in use are not released in time", "warning"
	case supervisor.AbandonedEnded:
		level = slog.LevelInfo
	}
	attributes := []slog.Attr{slog.String("limit", event.Supervisor)}
	if event.Child != "" {
		attributes = append(attributes, slog.String("goroutine", event.Child))
	}
	if event.Err != nil {
		attributes = append(attributes, slog.String(reason, event.Err.Error()))
	}
	if event.Missed > 0 {
		attributes = append(attributes, slog.Int("missed", event.Missed))
	}
	if isState {
		l.State(event.Supervisor+"/"+event.Child, level, text, attributes...)
		return
	}
	l.Record(level, text, attributes...)
}

// Health returns a function that returns the limiter's Health. That function writes an error when
// Health becomes or changes an error, and Info when Health is nil again. A program should call the
// function periodically, such as in a health check. The function is safe for concurrent use and
// calls Health one at a time, so the records are in order. The newest is always written in the end:
// see [Log.State].
func (l *Log) Health(name string, limiter interface{ Health() error }) func() error {
	var mu sync.Mutex
	last := ""
	// The topic is of this function alone.
	topic := new(byte)
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
