package outgoing

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// The defaults of Config.
const (
	defaultName       = "outgoing"
	defaultPatience   = 10 * 365 * 24 * time.Hour
	defaultProbe      = 5 * time.Second
	defaultBackoff    = time.Second
	defaultMaxBackoff = time.Hour
	defaultMaxKeys    = 1 << 16
	defaultIdle       = 5 * time.Minute
	longest           = 4 * 365 * 24 * time.Hour // the most that engine.Block accepts
)

// Config is what a Line is made with. The zero Config is a good choice: the limit of each key
// is learned from what the other side answers. Negative values are refused.
type Config struct {
	// Name is the name of the line's engine, in errors and metrics. The default is
	// "outgoing".
	Name string

	// Policy is the limit that each key is held to, for other sides that do not tell
	// theirs. Fields that describe a limit are not learned from then, and refusals are
	// obeyed as ever. Choose one that spaces calls, such as a policy.Funnel: one that counts in
	// windows lets all calls of a window go at once, also after a refusal. The default is to
	// learn: see docs/outgoing.md.
	Policy policy.Policy

	// Patience is the longest that a call waits for its turn. A call whose turn comes later
	// gets engine.ErrDeadline at once. The default is to wait as long as the context allows.
	Patience time.Duration

	// MaxWaiting bounds how many calls may wait for one key. Further ones get
	// engine.ErrCrowded. The default is 1024.
	MaxWaiting int

	// MaxKeys bounds how many keys are remembered. The default is 65536. Calls for further
	// keys wait for nothing that was learned.
	MaxKeys int

	// Idle is how long a key is remembered after its last call, and after the end of a back-off.
	// A key that calls wait for is remembered in any case. The default is 5 minutes.
	Idle time.Duration

	// Probe is how long the calls of a key of which nothing is known wait for the answer to
	// the first of them. If it has not come by then, they go, one every 10 milliseconds. The
	// default is 5 seconds.
	Probe time.Duration

	// Backoff is for how long a refusal holds a key if it does not say how long. It doubles
	// with each refusal in a row, up to MaxBackoff. The default is a second.
	Backoff time.Duration

	// MaxBackoff bounds for how long an answer may hold a key, whatever it says. The default
	// is an hour, the most 4 years (35040h).
	MaxBackoff time.Duration

	// Jitter is the most by which a back-off is lengthened, at random, so that several
	// processes do not come back at once. It is drawn once for each refusal and holds for the
	// whole key, so the order of its line stays. The default is 0, none.
	Jitter time.Duration
}

// withDefaults fills in what was left zero. This is the only place that does.
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
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	return c
}

// validate returns a *policy.FieldError for the first field that is not acceptable. The engine
// checks Name, MaxWaiting, MaxKeys and Idle.
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
	case c.Jitter < 0 || c.Jitter > time.Hour:
		return bad("Jitter", c.Jitter, "0 to 1h")
	}
	return nil
}

// Line holds calls to the limits of the other sides that they go to, key by key. Call [New] to
// make one, and Close when no call needs it any more. Any number of goroutines may call its
// methods.
type Line[K comparable] struct {
	engine *engine.Engine[K]
	config Config
	probe  policy.Policy // nil if Config.Policy holds
	burst  burst         // of Config.Policy

	mu    sync.RWMutex
	keys  map[K]*state
	sweep int // the number of keys at which the next sweep is due
	began time.Time

	counters counters
}

// New makes a Line. An error is a *policy.FieldError that names the field. K is the type of
// its keys, which are compared by ==.
func New[K comparable](config Config) (*Line[K], error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	l := &Line[K]{config: config, keys: make(map[K]*state), sweep: min(firstSweep, config.MaxKeys), began: time.Now()}
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
		l.probe = probe
		of.Policy, options = l.probe, append(options, engine.PolicyFor(l.limitOf))
	}
	var err error
	if l.engine, err = engine.New(of, options...); err != nil {
		return nil, err
	}
	return l, nil
}

// Wait blocks until a call for the key may be sent, and takes its turn. Calls of a key are
// served in the order in which they come. A call whose context ends has taken nothing.
//
// The error wraps one of engine's: ErrCancelled and the context's error, ErrDeadline at once
// if the turn comes after the context's deadline or Config.Patience, ErrCrowded and ErrClosed.
//
// It allocates nothing if it need not wait and the key is known.
func (l *Line[K]) Wait(ctx context.Context, key K) (Turn[K], error) {
	s := l.join(key)
	defer s.leave()
	r, err := l.acquire(ctx, key, s)
	if err != nil {
		return Turn[K]{}, fmt.Errorf("outgoing: %w", err)
	}
	s.used.Store(int64(time.Since(l.began)))
	l.counters.turns.Add(1)
	return Turn[K]{Waited: r.Waited, line: l, key: key, state: s, number: s.turns.Add(1), held: r}, nil
}

// acquire takes the turn of a call. The first call of a key goes alone: those behind it find
// the key in debt for Config.Probe, unless an answer changes that.
func (l *Line[K]) acquire(ctx context.Context, key K, s *state) (engine.Reservation[K], error) {
	if l.probe == nil || s.begun.Load() {
		return l.engine.Acquire(ctx, key, 1, l.config.Patience)
	}
	if r, ok := l.takeFirst(ctx, key, s); ok {
		return r, nil
	}
	return l.engine.Acquire(ctx, key, 1, l.config.Patience)
}

// takeFirst takes the turn of the first call of a key, if it is there at once. A key that is held
// has none: a call must not wait for the lock while another waits for its turn.
func (l *Line[K]) takeFirst(ctx context.Context, key K, s *state) (r engine.Reservation[K], ok bool) {
	s.first.Lock()
	defer s.first.Unlock()
	if s.begun.Load() {
		return r, false
	}
	r, err := l.engine.Acquire(ctx, key, 1, 0)
	if err != nil {
		return r, false
	}
	l.engine.RefundWith(l.probe, key, -int64(l.config.Probe/probePause))
	s.begun.Store(true)
	return r, true
}

// Turn is leave to send one call. Call Obey when the call is answered, Cancel if it was not
// sent, or Lost if there will be no answer. If none is called, it counts as sent. Its
// methods are for one goroutine at a time, and a copy must not be used as well. The zero Turn
// does nothing.
type Turn[K comparable] struct {
	// Waited is the time that the call waited for its turn.
	Waited time.Duration

	line   *Line[K]
	key    K
	state  *state
	number uint64
	held   engine.Reservation[K]

	answered bool
}

// Cancel ends the turn and gives it back, for a call that was not sent. It does nothing after
// Obey.
func (t *Turn[K]) Cancel() {
	if t.line != nil && !t.answered {
		t.held.Cancel()
		t.line.lost(t.key, t.state)
	}
	t.line = nil
}

// Lost ends a turn whose call gets no answer, such as one that could not connect. The call
// counts as sent. If it was the first of its key, those behind it wait for it no longer. It
// does nothing after Obey.
func (t *Turn[K]) Lost() {
	if t.line != nil && !t.answered {
		t.line.lost(t.key, t.state)
	}
	t.line = nil
}

// Obey tells the line what the other side answered. What it refuses holds the key from now on,
// before Obey returns. Answers may come in any order: what a call was told is not used for the
// pace once a call that was sent later has been answered. No answer shortens a back-off.
//
// A call that is answered bit by bit, such as a stream, may call it again: a refusal is obeyed,
// and nothing else is used.
func (t *Turn[K]) Obey(a Answer) {
	if t.line != nil {
		t.answered = true
		t.line.obey(t.key, t.state, t.number, a)
	}
}

// Held returns for how much longer an answer keeps all calls of the key waiting, 0 if none
// does.
func (l *Line[K]) Held(key K) time.Duration { return l.engine.Blocked(key) }

// Limit returns the limit that the key is held to now.
func (l *Line[K]) Limit(key K) policy.Policy { return l.engine.LimitFor(key) }

// Reset forgets what the other side has said about the key, and lets calls go on.
func (l *Line[K]) Reset(key K) {
	l.mu.Lock()
	delete(l.keys, key)
	l.mu.Unlock()
	l.engine.Reset(key)
}

// Engine returns the line's engine, to be shown by packages metrics and inspect. It must not be
// closed.
func (l *Line[K]) Engine() *engine.Engine[K] { return l.engine }

// Close ends all waits with engine.ErrClosed, and returns when the line's goroutines have
// ended.
func (l *Line[K]) Close() error { return l.engine.Close() }

// counters are what Stats returns, as far as the engine does not count it.
type counters struct {
	turns, refusals, retries, unheld atomic.Uint64
}

// Stats is what a Line has counted since New.
type Stats struct {
	Waiting  int           // calls in line now
	Waits    uint64        // calls that have left the line, served or not
	WaitTime time.Duration // how long these stood there in all
	Turns    uint64        // calls that got their turn
	Refusals uint64        // refusals of the other sides that were obeyed
	Retries  uint64        // calls that were sent once more by a Transport or an interceptor
	Held     int           // keys whose calls all wait because of an answer
	Unheld   uint64        // refusals that could not be recorded, as MaxKeys keys are held already
	Keys     int           // keys that are remembered
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
	}
}

// CountRetry counts a call that is sent once more, for adapters that do so.
func (l *Line[K]) CountRetry() { l.counters.retries.Add(1) }
