package outgoing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
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
	longest           = 4 * 365 * 24 * time.Hour // the maximum of engine.Block
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

	// MaxBackoff bounds how long any answer may hold a key, at most 4 years (35040h). The default
	// is an hour.
	MaxBackoff time.Duration

	// Pace is how calls use a learned limit. The default is Spend.
	Pace Pace

	// Reserve is the share that these calls leave to others, from 0 to below 1, of each limit that is
	// told with its window.
	Reserve float64

	// Jitter is the longest random extension of a back-off, so that processes do not return
	// together. It is drawn per refusal for the whole key: calls keep their order. The default is
	// 0.
	Jitter time.Duration

	// Logger gets a warning about the first reset that is not believed: see Stats.BadResets. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Pace is how calls use a limit.
type Pace int

const (
	// Spend sends calls at once while the server has units left, and then waits for its reset. Calls
	// are spaced instead after a refusal, if others use up the limit, under a limit counted in two
	// windows, and under several limits.
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
	case c.MaxBackoff < 0 || c.MaxBackoff > longest:
		return bad("MaxBackoff", c.MaxBackoff, "1ns to 35040h, or 0 for 1h")
	case c.Backoff < 0 || c.Backoff > longest:
		return bad("Backoff", c.Backoff, "1ns to 35040h, or 0 for 1s")
	case c.Pace != Spend && c.Pace != Even:
		return bad("Pace", c.Pace, "Spend or Even")
	case !(c.Reserve >= 0 && c.Reserve < 1):
		return bad("Reserve", c.Reserve, "0 or more, and below 1")
	case c.Jitter < 0 || c.Jitter > time.Hour:
		return bad("Jitter", c.Jitter, "0 to 1h")
	}
	return nil
}

// Line queues calls and keeps them within their servers' limits, key by key. Close it when no call
// needs it. Its methods are safe for concurrent use.
type Line[K comparable] struct {
	engine *engine.Engine[K]
	config Config
	probe  *limit // nil with Config.Policy
	burst  burst  // of Config.Policy

	mu      sync.RWMutex
	keys    map[K]*state
	leaving departures[K] // the keys, by the time from which they may leave
	steps   uint64        // keys examined for leaving
	began   time.Time

	counters counters
	badReset sync.Once // logs the first
}

// New makes a Line with keys compared by ==. An error is a *policy.FieldError that names the field.
func New[K comparable](config Config) (*Line[K], error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	l := &Line[K]{config: config, keys: make(map[K]*state), began: time.Now()}
	of := engine.Config{
		Name:            config.Name,
		Policy:          config.Policy,
		MaxWaiting:      config.MaxWaiting,
		MaxWaitingTotal: config.MaxWaiting * 64,
		MaxKeys:         config.MaxKeys,
		Idle:            config.Idle,
	}
	var options []engine.Option[K]
	if config.Policy != nil {
		l.burst = burstOf(config.Policy)
		l.burst.spaced = l.burst.spaced || l.burst.most == 1
	} else {
		l.probe = evenly(1, 1, probePause)
		l.probe.first = config.Probe
		of.Policy, of.Clock = l.probe, func() policy.Instant { return instant(time.Since(l.began)) }
		options = append(options, engine.PolicyFor(l.limitOf))
	}
	var err error
	if l.engine, err = engine.New(of, options...); err != nil {
		return nil, err
	}
	return l, nil
}

// Wait blocks until a call for the key may be sent, and takes its turn. A key's calls are served in
// order of arrival. A call whose context ends takes nothing.
//
// The error wraps an error of package engine: ErrCancelled with the context's error, ErrDeadline at
// once if the turn comes after the context's deadline or Config.Patience (a *[TurnError]), ErrCrowded
// or ErrClosed.
// Without waiting, a call of a known key allocates nothing.
func (l *Line[K]) Wait(ctx context.Context, key K) (Turn[K], error) {
	s := l.join(key)
	defer s.leave()
	r, err := l.engine.Acquire(ctx, key, 1, l.config.Patience)
	if err != nil {
		return Turn[K]{}, l.late(key, s, err)
	}
	now := time.Since(l.began)
	s.used.Store(int64(now))
	l.counters.turns.Add(1)
	t := Turn[K]{
		Waited: r.Waited, line: l, key: key, state: s, held: r,
		number: s.turns.Add(1), sent: instant(now), answered: s.answered.Load(),
	}
	l.open(&t)
	return t, nil
}

// Turn allows a call to be sent. Call Obey with the answer, Cancel if the call was not sent, or
// Lost if no answer will come; otherwise it counts as sent, and the windows after it have a call
// less. Methods are for one goroutine at a time; do not use a copy as well. The zero Turn does
// nothing.
type Turn[K comparable] struct {
	// Waited is how long the call waited for its turn.
	Waited time.Duration

	line   *Line[K]
	key    K
	state  *state
	number uint64
	held   engine.Reservation[K]

	sent     policy.Instant
	answered uint64 // calls of the key, before this one was sent
	obeyed   bool
}

// Cancel returns the turn of a call that was not sent. It does nothing after Obey.
func (t *Turn[K]) Cancel() {
	if t.line != nil && !t.obeyed {
		t.held.Cancel()
		t.line.lost(t.key, t.state)
	}
	t.line = nil
}

// Lost ends the turn of a call without an answer, such as a failed connection. The call counts as
// sent; a first call no longer delays those behind it. It does nothing after Obey.
func (t *Turn[K]) Lost() {
	if t.line != nil && !t.obeyed {
		t.line.lost(t.key, t.state)
	}
	t.line = nil
}

// Obey tells the line the answer. A refusal holds the key before Obey returns. Answers may come in
// any order: an answer does not set the pace after a call sent later was answered. No answer
// shortens a back-off.
//
// A call answered in parts, such as a stream, may call Obey again: only refusals are then used.
func (t *Turn[K]) Obey(a Answer) {
	if t.line != nil {
		first := !t.obeyed
		if first {
			t.obeyed = true
			t.state.answered.Add(1)
		}
		t.line.obey(t, a, first)
	}
}

// Held returns how much longer an answer keeps all calls of the key waiting, 0 if none does.
func (l *Line[K]) Held(key K) time.Duration { return l.engine.Blocked(key) }

// Limit returns the present limit of the key.
func (l *Line[K]) Limit(key K) policy.Policy { return l.engine.LimitFor(key) }

// Reset forgets everything learned about the key, and lets calls go on.
func (l *Line[K]) Reset(key K) {
	l.mu.Lock()
	l.forget(key)
	l.mu.Unlock()
	l.engine.Reset(key)
}

// Engine returns the line's engine, for packages metrics and inspect. Do not close it.
func (l *Line[K]) Engine() *engine.Engine[K] { return l.engine }

// Close ends all waits with engine.ErrClosed, and returns when the line's goroutines have ended.
func (l *Line[K]) Close() error { return l.engine.Close() }

type counters struct {
	turns, refusals, retries, unheld, badResets atomic.Uint64
}

// Stats are a Line's counts since New.
type Stats struct {
	Waiting  int           // calls in line now
	Waits    uint64        // calls that left the line, served or not
	WaitTime time.Duration // total time these calls waited
	Turns    uint64        // calls that got their turn
	Refusals uint64        // refusals by servers that were obeyed
	Retries  uint64        // calls sent again by a Transport or an interceptor
	Held     int           // keys with all calls waiting because of an answer
	Unheld   uint64        // refusals not recorded because MaxKeys keys were held
	Keys     int           // keys remembered

	// BadResets counts resets ignored because they were past, or later than Config.MaxBackoff and
	// two windows of the limit.
	BadResets uint64
}

// Stats returns the line's counters. They may be a moment apart.
func (l *Line[K]) Stats() Stats {
	e := l.engine.Stats()
	l.mu.RLock()
	keys := len(l.keys)
	l.mu.RUnlock()
	return Stats{
		Waiting: e.Waiting, Waits: e.Waits, WaitTime: e.WaitTime,
		Turns:    l.counters.turns.Load(),
		Refusals: l.counters.refusals.Load(),
		Retries:  l.counters.retries.Load(),
		Held:     e.BlockedKeys,
		Unheld:   l.counters.unheld.Load(),
		Keys:     keys,

		BadResets: l.counters.badResets.Load(),
	}
}

// CountRetry counts a call sent again, for adapters.
func (l *Line[K]) CountRetry() { l.counters.retries.Add(1) }
