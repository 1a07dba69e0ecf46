package outgoing

import (
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

// Line queues calls and keeps them within their servers' limits, key by key. Call New to make a Line;
// the zero Line is of no use. Its methods are safe for concurrent use. Close a Line when no call needs
// it.
//
// For an http.Client, make a Transport of the Line, which calls the methods. For another client, Wait
// before each call returns a Turn, and the caller must tell the Turn how the call ended. Send waits,
// calls a function that sends, and repeats calls that the server refused. BackoffLeft, Limit and Stats
// change nothing. Reset forgets a key and everything that its server stated.
type Line[K comparable] struct {
	engine *engine.Engine[K]
	config Config
	pacing pacing.Config
	// burst is the burst of Config.Policy.
	burst pacing.Burst
	// units has a line for each of Config.Units.
	units []*Line[K]
	// inFlight counts the calls in flight. It is nil without Config.InFlight.
	inFlight *engine.Engine[K]
	keys     keys[K]

	// The lines in units share these counters.
	*counters
}

// Option is an option of New.
type Option[K comparable] func(*Line[K])

// DelayFor sets the least time between two calls of a key, such as a host's crawl delay. delay returns
// that time, or 0 for none. A call that costs n delays the next call by n times as long. delay is called
// for the first call of a key, and for each call of a key beyond Config.MaxKeys, from any goroutine.
// Config.Policy must be nil.
func DelayFor[K comparable](delay func(key K) time.Duration) Option[K] {
	return func(line *Line[K]) { line.keys.delay = delay }
}

// New makes a Line with keys compared by ==. An error is a *policy.FieldError that names the field.
func New[K comparable](config Config, options ...Option[K]) (*Line[K], error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	line, err := build(config.withDefaults(), &counters{}, options)
	if err != nil {
		return nil, err
	}
	if err := line.countInFlight(); err != nil {
		_ = line.Close()
		return nil, err
	}
	for _, unit := range config.Units {
		config := line.config
		config.Name, config.Policy = line.config.Name+" "+unit, nil
		u, err := build[K](config, line.counters, nil)
		if err != nil {
			_ = line.Close()
			return nil, err
		}
		line.units = append(line.units, u)
	}
	return line, nil
}

func build[K comparable](config Config, counters *counters, with []Option[K]) (*Line[K], error) {
	line := &Line[K]{config: config, counters: counters, pacing: pacing.Config{
		Learns: config.Policy == nil, Spends: config.Pace == Spend, Reserve: config.Reserve,
		Probe: config.Probe, Backoff: config.Backoff, MaxBackoff: config.MaxBackoff,
	}}
	line.keys = keys[K]{pacing: &line.pacing, max: config.MaxKeys, idle: config.Idle, began: time.Now(), failing: &counters.failing,
		states: make(map[K]*state[K]), leaving: btree.NewG(16, sooner[K])}
	for _, option := range with {
		if option != nil {
			option(line)
		}
	}
	if line.keys.delay != nil && config.Policy != nil {
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
		line.burst = pacing.BurstOf(config.Policy)
		line.burst.Spaced = line.burst.Spaced || line.burst.Max == 1
	} else {
		settings.Policy, settings.Clock = pacing.Probe(config.Probe), func() policy.Instant { return pacing.Instant(line.keys.now()) }
		options = append(options, engine.PolicyFor(line.keys.limit))
	}
	var err error
	if line.engine, err = engine.New(settings, options...); err != nil {
		return nil, err
	}
	return line, nil
}

// BackoffLeft returns how much longer all calls of the key wait because of an answer, or fail at once:
// see Config.MaxBackoff. It is 0 if there is no such answer.
func (l *Line[K]) BackoffLeft(key K) (left time.Duration) {
	for line := range l.each() {
		left = max(left, line.engine.Blocked(key))
		if state := line.keys.find(key); state != nil {
			left = max(left, state.failsFor(line.keys.now()))
		}
	}
	return left
}

// Limit returns the present limit of the key in calls, not in one of Config.Units.
func (l *Line[K]) Limit(key K) policy.Policy { return l.engine.LimitFor(key) }

// Reset forgets everything learned about the key, and lets its calls go on. Calls in flight still count
// for Config.InFlight.
func (l *Line[K]) Reset(key K) {
	for line := range l.each() {
		line.keys.mu.Lock()
		line.keys.forget(key)
		line.keys.mu.Unlock()
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
	if l.inFlight != nil {
		err = errors.Join(err, l.inFlight.Close())
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
	// gated is the number of calls that wait for a gate. gateTime is the total time of all waits for gates, in
	// nanoseconds.
	gated, gateTime atomic.Int64
	// failing is the number of keys with an overlong time: see state.failsUntil. The limit of calls and each of
	// Config.Units count separately.
	failing atomic.Int64
}

// Stats are a Line's counts since New.
type Stats struct {
	// Waiting is the number of calls in line now.
	Waiting int
	// Waits counts the calls that left the line, served or not.
	Waits uint64
	// WaitTime is the total time that the calls of Waits have waited.
	WaitTime time.Duration
	// Turns counts the calls that got their turn.
	Turns uint64
	// Refusals counts the refusals by servers that were obeyed.
	Refusals uint64
	// Retries counts the calls sent again by a Transport or an interceptor.
	Retries uint64
	// Held is the number of keys all of whose calls wait or fail because of an answer. The limit of
	// calls and each of Config.Units count separately.
	Held int
	// Unheld counts the refusals that were not recorded because MaxKeys keys were held.
	Unheld uint64
	// Keys is the number of keys remembered.
	Keys int

	// Overstayed counts calls that ended after the longest time of Config.InFlight.
	Overstayed uint64

	// BadResets counts resets ignored because they were past, or later than Config.MaxBackoff and
	// two windows of the limit.
	BadResets uint64
}

// Stats returns the line's counters. They are not read at one instant.
func (l *Line[K]) Stats() Stats {
	stats := Stats{
		Waiting:   int(l.counters.gated.Load()),
		WaitTime:  time.Duration(l.counters.gateTime.Load()),
		Turns:     l.counters.turns.Load(),
		Refusals:  l.counters.refusals.Load(),
		Retries:   l.counters.retries.Load(),
		Unheld:    l.counters.unheld.Load(),
		BadResets: l.counters.badResets.Load(),
		Held:      int(l.counters.failing.Load()),
	}
	add := func(e engine.Stats) {
		stats.Waiting, stats.Waits, stats.WaitTime = stats.Waiting+e.Waiting, stats.Waits+e.Waits, stats.WaitTime+e.WaitTime
		stats.Held += e.BlockedKeys
	}
	for line := range l.each() {
		add(line.engine.Stats())
	}
	if l.inFlight != nil {
		e := l.inFlight.Stats()
		add(e)
		stats.Overstayed = e.Overstayed
	}
	stats.Keys = l.keys.len()
	return stats
}

// countInFlight opens the engine that counts calls in flight.
func (l *Line[K]) countInFlight() (err error) {
	if config := &l.config; config.InFlight != nil {
		l.inFlight, err = engine.New[K](engine.Config{
			Name: config.Name + " in flight", Policy: config.InFlight, MaxWaiting: config.MaxWaiting, MaxWaitingTotal: config.MaxWaiting * 64,
			MaxKeys: config.MaxKeys, Idle: config.Idle, WhenUnavailable: engine.Refuse,
		})
	}
	return err
}

// hasGates reports whether a key has several limits, so that its calls pass a gate: see Turn.enter.
func (l *Line[K]) hasGates() bool { return len(l.units) > 0 || l.inFlight != nil }
