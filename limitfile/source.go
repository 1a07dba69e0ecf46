package limitfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// SourceConfig configures a Source. Find and Config.Policy are required.
//
// Find and Since return limits as texts for policy.Parse. "" stands for Config.Policy. A limit must be of
// the family of Config.Policy: see engine.PolicyFor. At most one call of Find or Since runs at a time, in the
// background. Neither may panic, and the context of a call ends after 10 s.
type SourceConfig[K comparable] struct {
	// Find returns the limits of up to 1,000 keys. A key that the result lacks has the limit
	// Config.Policy. Find is called for keys that are new to the Source, and for the keys of Changed, at
	// most 100 times a second.
	Find func(ctx context.Context, keys []K) (map[K]string, error)
	// Since, if not nil, returns the limits that have changed after a mark, and the next mark. The first
	// mark is "". It asks for all limits that the Source should know before their keys come.
	Since func(ctx context.Context, mark string) (limits map[K]string, next string, err error)
	// Every is the time between two calls of Since, and the pause of Find after an error. The default is a second.
	Every time.Duration
	// Again is the time between two rounds in which Find is called once more for all keys that the Source
	// knows. 0 means never.
	Again time.Duration
	// Config and Options are for the engine. A State.Path requires Since, which must know the limits of
	// the saved keys. engine.PolicyFor among the Options has no effect.
	Config  engine.Config
	Options []engine.Option[K]
}

// Source is an engine whose keys have limits of their own, from a database or another program. Each
// call is decided by the limits that the Source knows. A call never waits for Find, and an error of Find
// changes no limit.
// A key is held to Config.Policy until its limit is known. When a limit comes or changes, the units
// that the key has used still count: see engine.Engine.SwitchLimit.
//
// The Source knows the limits of at most twice as many keys as its engine has room for. When it knows that
// many, it forgets the limits of keys that have left the engine, and calls Find again when they come back.
type Source[K comparable] struct {
	*engine.Engine[K]
	config SourceConfig[K]
	// max is the most keys whose limits are known.
	max int
	// known has the limits of keys. A key with the limit Config.Policy may be in it, too.
	known *xsync.MapOf[K, *own]
	// missing passes keys that are not known to run. A key that does not fit in is left out, since the next call on
	// the key tries again.
	missing chan K
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	// Only run uses texts, mark, stale and failed, after NewSource.

	// texts has parsed limits by their texts.
	texts map[string]*own
	mark  string
	// stale has the keys that Again still has to find.
	stale []K
	// failed reports whether Find has failed since the last tick. It is not called until the next tick.
	failed bool

	// mu guards the fields below. No lock is taken while it is locked.
	mu sync.Mutex
	// wanted has the keys for which Find is to be called next.
	wanted map[K]struct{}
	// refused has the errors of keys whose limit was not accepted.
	refused map[K]error
	// errs has the last errors of Find and of Since.
	errs [2]error
}

// own is the limit of a key, with its text. policy is nil for Config.Policy.
type own struct {
	text   string
	policy policy.Policy
}

const (
	// defaultMaxKeys is the default of engine.Config.
	defaultMaxKeys = 1 << 20

	maxBatch  = 1000
	maxTexts  = 10_000
	findPause = 10 * time.Millisecond
	maxFind   = 10 * time.Second
	// ofFind and ofSince are indices of Source.errs.
	ofFind  = 0
	ofSince = 1
)

// NewSource returns a Source, after a first call of Since. The error is a *policy.FieldError, or from
// engine.New, or, with a State.Path, from Since.
func NewSource[K comparable](config SourceConfig[K]) (*Source[K], error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "limitfile.SourceConfig", Field: field, Value: value, Want: want}
	}
	config.Every = cmp.Or(config.Every, defaultEvery)
	switch {
	case config.Find == nil:
		return nil, bad("Find", "nil", "a function")
	case config.Every < minEvery:
		return nil, bad("Every", config.Every, "10ms or more, or 0 for 1s")
	case config.Again < 0 || config.Again > 0 && config.Again < config.Every:
		return nil, bad("Again", config.Again, "Every or more, or 0 for never")
	case config.Config.State.Path != "" && config.Since == nil:
		return nil, bad("Since", "nil", "a function that returns the limits of saved keys, or no State.Path")
	case shape.IsNil(config.Config.Policy):
		return nil, bad("Config.Policy", "nil", "the limit of keys without one of their own")
	}
	source := &Source[K]{
		config: config, max: 2 * cmp.Or(config.Config.MaxKeys, defaultMaxKeys), known: xsync.NewMapOf[K, *own](),
		missing: make(chan K, maxBatch), wake: make(chan struct{}, 1), done: make(chan struct{}),
		texts: map[string]*own{}, wanted: map[K]struct{}{}, refused: map[K]error{},
	}
	source.ctx, source.cancel = context.WithCancel(context.Background())
	if config.Since != nil {
		if err := source.catchUp(); err != nil && config.Config.State.Path != "" {
			source.cancel()
			return nil, err
		}
	}
	var err error
	source.Engine, err = engine.New(config.Config, append(config.Options[:len(config.Options):len(config.Options)], engine.PolicyFor(source.limitFor))...)
	if err != nil {
		source.cancel()
		return nil, err
	}
	go source.run()
	return source, nil
}

// limitFor is the choice of engine.PolicyFor.
func (s *Source[K]) limitFor(key K) policy.Policy {
	if limit, ok := s.known.Load(key); ok {
		return limit.policy
	}
	select {
	case s.missing <- key:
	default:
	}
	return nil
}

// Changed tells the Source that the limits of keys may have changed, for example after a notification from
// the database. Find is called next for these keys. Changed does not wait.
func (s *Source[K]) Changed(keys ...K) {
	s.mu.Lock()
	for _, key := range keys {
		s.wanted[key] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Health returns nil if the engine is healthy, the last calls of Find and Since succeeded, and all
// limits were accepted. Otherwise the last good limits stay in force. The error names no key.
func (s *Source[K]) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.Engine.Health(), s.errs[ofFind], s.errs[ofSince])
	for _, refused := range s.refused {
		return errors.Join(err, fmt.Errorf("ral: %d keys keep their earlier limits: one of the later limits: %w", len(s.refused), refused))
	}
	return err
}

// Close ends the calls of Find and Since, and closes the engine.
func (s *Source[K]) Close() error {
	s.cancel()
	<-s.done
	return s.Engine.Close()
}

func (s *Source[K]) run() {
	defer close(s.done)
	ticks := time.NewTicker(s.config.Every)
	defer ticks.Stop()
	var again <-chan time.Time
	if s.config.Again > 0 {
		ticker := time.NewTicker(s.config.Again)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticks.C:
			if s.failed = false; s.config.Since != nil {
				_ = s.catchUp()
			}
		case <-again:
			s.stale = s.stale[:0]
			s.known.Range(func(key K, _ *own) bool { s.stale = append(s.stale, key); return true })
		case <-s.wake:
		case key := <-s.missing:
			if _, ok := s.known.Load(key); !ok {
				s.Changed(key)
			}
		}
		if !s.failed && s.find() {
			s.wakeAfter(findPause)
		}
	}
}

// wakeAfter waits, and lets run find the next keys.
func (s *Source[K]) wakeAfter(pause time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(pause):
		s.Changed()
	}
}

// find calls Find for the next keys. It reports whether there were any keys and Find succeeded. The keys of
// Changed come first, then unknown keys, and then the keys of Again.
func (s *Source[K]) find() bool {
	keys := s.batch()
	if len(keys) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, maxFind)
	defer cancel()
	limits, err := s.config.Find(ctx, keys)
	if s.note(ofFind, err) != nil {
		s.failed = true
		s.Changed(keys...)
		return false
	}
	for _, key := range keys {
		s.put(key, limits[key], true)
	}
	return true
}

// batch returns the next keys for Find.
func (s *Source[K]) batch() (keys []K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.wanted {
		if len(keys) == maxBatch {
			return keys
		}
		keys = append(keys, key)
		delete(s.wanted, key)
	}
	seen := make(map[K]bool, len(s.missing))
	for len(keys) < maxBatch {
		select {
		case key := <-s.missing:
			if _, ok := s.known.Load(key); !ok && !seen[key] {
				keys, seen[key] = append(keys, key), true
			}
			continue
		default:
		}
		n := min(maxBatch-len(keys), len(s.stale))
		keys, s.stale = append(keys, s.stale[:n]...), s.stale[n:]
		break
	}
	return keys
}

// catchUp calls Since once.
func (s *Source[K]) catchUp() error {
	ctx, cancel := context.WithTimeout(s.ctx, maxFind)
	defer cancel()
	limits, next, err := s.config.Since(ctx, s.mark)
	if err = s.note(ofSince, err); err != nil {
		return err
	}
	for key, text := range limits {
		// Only the first call adds keys. For other keys Find is called when they come.
		s.put(key, text, s.mark == "" && s.known.Size() < s.max)
	}
	s.mark = next
	return nil
}

// note keeps the error of a call for Health, and returns it as Health has it.
func (s *Source[K]) note(call int, err error) error {
	if err != nil {
		err = fmt.Errorf("ral: the source of limits: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs[call] = err
	return err
}

// put sets the limit of a key, if the key is known or add is set. If the text is not accepted, the earlier limit stays.
func (s *Source[K]) put(key K, text string, add bool) {
	to, err := s.read(text)
	s.mu.Lock()
	if delete(s.refused, key); err != nil && len(s.refused) < maxBatch {
		s.refused[key] = err
	}
	s.mu.Unlock()
	from, ok := s.known.Load(key)
	switch {
	case !ok && (!add || s.Engine != nil && s.known.Size() >= s.max && !s.trim()):
		return
	case !ok:
		// The map may grow here, which takes long. It must not grow while SwitchLimit holds up calls.
		from = new(own)
		s.known.Store(key, from)
	}
	if err == nil {
		s.set(key, from, to)
	}
}

// read returns the limit of a text, and remembers it in texts.
func (s *Source[K]) read(text string) (*own, error) {
	if limit := s.texts[text]; limit != nil {
		return limit, nil
	}
	limit := &own{text: text}
	if text != "" {
		var err error
		if limit.policy, err = policy.Parse(text); err != nil {
			return nil, err
		}
		if base := s.config.Config.Policy; !reads(limit.policy, base) {
			return nil, fmt.Errorf("ral: %q is of another family than %q: %s", text, base, shape.Followers(base, limit.policy))
		}
	}
	if len(s.texts) >= maxTexts {
		clear(s.texts)
	}
	s.texts[text] = limit
	return limit, nil
}

// set changes the limit of a known key. The units that the key has used still count.
func (s *Source[K]) set(key K, from, to *own) {
	publish := func() { s.known.Store(key, to) }
	switch {
	case from.text == to.text:
	case s.Engine == nil:
		publish()
	default:
		// The limits are of one family, so the change fails only if the engine is closed.
		_ = s.SwitchLimit(key, from.policy, to.policy, publish)
	}
}

// trim forgets the limits of keys that the engine has forgotten, and reports whether there is room for another key.
func (s *Source[K]) trim() bool {
	inUse := make(map[K]struct{}, s.Len())
	for key := range s.All() {
		inUse[key] = struct{}{}
	}
	s.known.Range(func(key K, from *own) bool {
		if _, ok := inUse[key]; !ok {
			s.set(key, from, new(own))
			s.known.Delete(key)
		}
		return s.ctx.Err() == nil
	})
	return s.known.Size() < s.max
}
