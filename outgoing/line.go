package outgoing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

const (
	defaultName       = "outgoing"
	defaultPatience   = 10 * 365 * 24 * time.Hour
	defaultProbe      = 5 * time.Second
	defaultBackoff    = time.Second
	defaultMaxBackoff = time.Hour
	defaultMaxKeys    = 1 << 16
	defaultIdle       = 5 * time.Minute
	defaultMaxWaiting = 1024 // of package engine
	maxUnits          = 7
)

// Config configures a Line. The zero Config learns each limit. Negative values are errors.
type Config struct {
	// Name is the name of the line's engine in errors and metrics. The default is "outgoing".
	Name string

	// Policy is the limit of each key, for servers that advertise none; advertised limits are then
	// ignored, refusals still obeyed. Choose a policy that spaces calls, such as policy.Funnel:
	// windows release all their calls at once, even after a refusal. Nil learns the limit: see
	// docs/outgoing.md.
	Policy policy.Policy

	// Patience is the longest wait; a call with a later turn gets engine.ErrDeadline at once. 0
	// waits as long as the context allows.
	Patience time.Duration

	// MaxWaiting bounds the waiting calls per key. More get engine.ErrCrowded. The default is 1024.
	MaxWaiting int

	// MaxKeys bounds the remembered keys. Nothing is learned for more. The default is 65536.
	MaxKeys int

	// Idle is how long a key without waiting calls is remembered after its last call and back-off,
	// or longer until other keys join. The default is 5 minutes.
	Idle time.Duration

	// Probe is how long the calls of an unknown key wait for the answer to its first call. After
	// that they go, 10 milliseconds apart. The default is 5 seconds.
	Probe time.Duration

	// Backoff is how long a refusal without a time holds a key. It doubles with each refusal in a
	// row, up to MaxBackoff. The default is a second.
	Backoff time.Duration

	// MaxBackoff is the longest time stated by an answer for which a call sleeps, at most 4 years
	// (35040h). While the rest of that time is longer, each call of the key fails at once with a
	// *TurnError that names the server's time. As a server may err, one call is sent after MaxBackoff,
	// and others after 2, 4, 8 and so on times as long. If it is served the others go on. Line.Reset
	// lifts the time. Waits for other calls and for a learned limit are bounded by Patience alone. The
	// default is an hour.
	MaxBackoff time.Duration

	// Pace is how calls use a learned limit. The default is Spend.
	Pace Pace

	// Units names further limits of each key, in units that calls cost, as header fields name them,
	// such as "tokens": see [Line.Wait]. They are learned, beside a limit of calls by Policy too.
	Units []string

	// Debts reports whether servers admit a call that costs more than they tell as the limit, and let
	// it owe the rest. Without it such a call gets engine.ErrNever at once, and its refusal holds no
	// other call.
	Debts bool

	// Reserve is the fraction, from 0 to below 1, that this line leaves to others of each limit that is
	// told with its window.
	Reserve float64

	// Jitter is the longest random extension of a back-off, so that processes do not return
	// together. It is drawn per refusal for the whole key: calls keep their order. The default is
	// 0.
	Jitter time.Duration

	// OnTurn, if not nil, is told each turn after Wait, and each call whose turn would come too late.
	// Decision.Wait is how long the call waited. limit is Name, and for one of Units also the unit.
	// Set it to ralotel.TraceDecision to have waits in traces.
	OnTurn func(ctx context.Context, limit string, d policy.Decision)

	// Logger gets a warning about the first reset that is not believed: see Stats.BadResets. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Pace is how calls use a limit.
type Pace int

const (
	// Spend sends calls at once while the server has units left, and then waits for its reset. Calls
	// are spaced instead after a refusal, if others use up the limit, and under a limit counted in two
	// windows. Of several limits the one with the least left binds.
	Spend Pace = iota
	// Even spaces calls over the limit's time.
	Even
)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = defaultName
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Patience, defaultPatience},
		{&c.Idle, defaultIdle},
		{&c.Probe, defaultProbe},
		{&c.Backoff, defaultBackoff},
		{&c.MaxBackoff, defaultMaxBackoff},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	return c
}

// validate finds bad fields. The engine checks Name, MaxWaiting, MaxKeys and Idle.
func (c Config) validate() error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "outgoing.Config", Field: field, Value: value, Want: want}
	}
	switch {
	case c.Policy != nil && shape.IsNil(c.Policy):
		return bad("Policy", "a nil pointer", "a policy, or nil to learn the limit")
	case c.Patience < 0:
		return bad("Patience", c.Patience, "a positive duration, or 0 for as long as the context allows")
	case c.MaxWaiting < 0:
		return bad("MaxWaiting", c.MaxWaiting, "1 or more, or 0 for 1024")
	case c.MaxKeys < 0:
		return bad("MaxKeys", c.MaxKeys, "1 or more, or 0 for 65536")
	case c.Idle < 0:
		return bad("Idle", c.Idle, "a positive duration, or 0 for 5m")
	case c.Probe < time.Millisecond && c.Probe != 0 || c.Probe > time.Hour:
		return bad("Probe", c.Probe, "1ms to 1h, or 0 for 5s")
	case c.MaxBackoff < 0 || c.MaxBackoff > answer.MaxTime:
		return bad("MaxBackoff", c.MaxBackoff, "1ns to 35040h, or 0 for 1h")
	case c.Backoff < 0 || c.Backoff > answer.MaxTime:
		return bad("Backoff", c.Backoff, "1ns to 35040h, or 0 for 1s")
	case c.Pace != Spend && c.Pace != Even:
		return bad("Pace", c.Pace, "Spend or Even")
	case !(c.Reserve >= 0 && c.Reserve < 1):
		return bad("Reserve", c.Reserve, "0 or more, and below 1")
	case c.Jitter < 0 || c.Jitter > time.Hour:
		return bad("Jitter", c.Jitter, "0 to 1h")
	case len(c.Units) > maxUnits:
		return bad("Units", len(c.Units), fmt.Sprintf("at most %d", maxUnits))
	}
	for i, unit := range c.Units {
		if unit == "" || strings.Trim(unit, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || unit == "requests" || slices.Contains(c.Units[:i], unit) {
			return bad("Units", fmt.Sprintf("%.80q", unit), "different names of lower-case letters, digits, - and _; requests are counted anyway")
		}
	}
	return nil
}

// Line queues calls and keeps them within their servers' limits, key by key. Close it when no call
// needs it. Its methods are safe for concurrent use.
type Line[K comparable] struct {
	engine *engine.Engine[K]
	config Config
	probe  *pacing.Limit             // nil with Config.Policy
	burst  pacing.Burst              // of Config.Policy
	units  []*Line[K]                // of Config.Units
	delay  func(key K) time.Duration // of DelayFor; may be nil

	mu      sync.RWMutex
	keys    map[K]*state
	leaving departures[K] // the keys, by the time from which they may leave
	steps   uint64        // keys examined for leaving
	began   time.Time

	*counters // also of the units
}

// Option is an option of New.
type Option[K comparable] func(*Line[K])

// DelayFor spaces a key's calls by a time or more, such as a host's crawl delay. 0 is none; a cost of
// n takes it n times. delay is called by first calls of a key, from any goroutine, and beyond
// Config.MaxKeys by each call. It needs a learned limit.
func DelayFor[K comparable](delay func(key K) time.Duration) Option[K] {
	return func(l *Line[K]) { l.delay = delay }
}

// New makes a Line with keys compared by ==. An error is a *policy.FieldError that names the field.
func New[K comparable](config Config, options ...Option[K]) (*Line[K], error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	l, err := build(config.withDefaults(), &counters{}, options)
	if err != nil {
		return nil, err
	}
	for _, unit := range config.Units {
		of := l.config
		of.Name, of.Policy = l.config.Name+" "+unit, nil
		u, err := build[K](of, l.counters, nil)
		if err != nil {
			_ = l.Close()
			return nil, err
		}
		l.units = append(l.units, u)
	}
	return l, nil
}

func build[K comparable](config Config, c *counters, with []Option[K]) (*Line[K], error) {
	l := &Line[K]{config: config, keys: make(map[K]*state), began: time.Now(), counters: c}
	for _, option := range with {
		if option != nil {
			option(l)
		}
	}
	if l.delay != nil && config.Policy != nil {
		return nil, &policy.FieldError{Of: "outgoing.Config", Field: "Policy", Value: config.Policy, Want: "nil, with DelayFor"}
	}
	settings := engine.Config{
		Name:            config.Name,
		Policy:          config.Policy,
		MaxWaiting:      config.MaxWaiting,
		MaxWaitingTotal: config.MaxWaiting * 64,
		MaxKeys:         config.MaxKeys,
		Idle:            config.Idle,
	}
	var options []engine.Option[K]
	if config.Policy != nil {
		l.burst = pacing.BurstOf(config.Policy)
		l.burst.Spaced = l.burst.Spaced || l.burst.Max == 1
	} else {
		l.probe = pacing.Probe(config.Probe)
		settings.Policy, settings.Clock = l.probe, func() policy.Instant { return pacing.Instant(time.Since(l.began)) }
		options = append(options, engine.PolicyFor(l.limitOf))
	}
	var err error
	if l.engine, err = engine.New(settings, options...); err != nil {
		return nil, err
	}
	return l, nil
}

// BackoffLeft returns how much longer an answer keeps all calls of the key waiting, or lets them fail at
// once: see Config.MaxBackoff. It is 0 if no answer does.
func (l *Line[K]) BackoffLeft(key K) (longest time.Duration) {
	for line := range l.each() {
		longest = max(longest, line.engine.Blocked(key))
		line.mu.RLock()
		if s := line.keys[key]; s != nil {
			longest = max(longest, line.overlongLeft(s))
		}
		line.mu.RUnlock()
	}
	return longest
}

// Limit returns the present limit of the key, in calls.
func (l *Line[K]) Limit(key K) policy.Policy { return l.engine.LimitFor(key) }

// Reset forgets everything learned about the key, and lets calls go on.
func (l *Line[K]) Reset(key K) {
	for line := range l.each() {
		line.mu.Lock()
		line.forget(key)
		line.mu.Unlock()
		line.engine.Reset(key)
	}
}

// Engine returns the engine that counts calls, for packages metrics and inspect. Do not close it.
func (l *Line[K]) Engine() *engine.Engine[K] { return l.engine }

// Close ends all waits with engine.ErrClosed, and returns when the line's goroutines have ended.
func (l *Line[K]) Close() (err error) {
	for line := range l.each() {
		err = errors.Join(err, line.engine.Close())
	}
	return err
}

// each yields the line, then the lines of Config.Units.
func (l *Line[K]) each() iter.Seq[*Line[K]] {
	return func(yield func(*Line[K]) bool) {
		if yield(l) {
			slices.Values(l.units)(yield)
		}
	}
}

type counters struct {
	turns, refusals, retries, unheld, badResets atomic.Uint64
	gated, gateTime                             atomic.Int64 // calls that wait for a gate, and the time of all
	overlongs                                   atomic.Int64 // keys with an overlong time, for each of Config.Units too
}

// Stats are a Line's counts since New.
type Stats struct {
	Waiting  int           // calls in line now
	Waits    uint64        // calls that left the line, served or not
	WaitTime time.Duration // total time these calls waited
	Turns    uint64        // calls that got their turn
	Refusals uint64        // refusals by servers that were obeyed
	Retries  uint64        // calls sent again by a Transport or an interceptor
	Held     int           // keys with all calls waiting or failing because of an answer, for each of Config.Units too
	Unheld   uint64        // refusals not recorded because MaxKeys keys were held
	Keys     int           // keys remembered

	// BadResets counts resets ignored because they were past, or later than Config.MaxBackoff and
	// two windows of the limit.
	BadResets uint64
}

// Stats returns the line's counters. They may be a moment apart.
func (l *Line[K]) Stats() Stats {
	s := Stats{
		Waiting:   int(l.counters.gated.Load()),
		WaitTime:  time.Duration(l.counters.gateTime.Load()),
		Turns:     l.counters.turns.Load(),
		Refusals:  l.counters.refusals.Load(),
		Retries:   l.counters.retries.Load(),
		Unheld:    l.counters.unheld.Load(),
		BadResets: l.counters.badResets.Load(),
		Held:      int(l.counters.overlongs.Load()),
	}
	for line := range l.each() {
		e := line.engine.Stats()
		s.Waiting, s.Waits, s.WaitTime = s.Waiting+e.Waiting, s.Waits+e.Waits, s.WaitTime+e.WaitTime
		s.Held += e.BlockedKeys
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	s.Keys = len(l.keys)
	return s
}
