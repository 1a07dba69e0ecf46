// Package storetest has a Redis in memory for tests in a bubble of testing/synctest: a [Store] of it
// obeys the contract of a store.Store, with policies and plain models in place of scripts. The tests
// of package store compare the two. Start reading at [Redis].
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// Redis keeps the words, logs, blocks and servers of all limits. Any number of goroutines may use it.
type Redis struct {
	weather struct {
		sync.Mutex
		redistest.Weather
		// changed is closed when the weather changes.
		changed chan struct{}
	}

	mu    sync.Mutex
	unfit error
	// keys and blocks are by name.
	keys   map[string]*value
	blocks map[string]uint64
	// rolls are by the prefix of the names of blocks.
	rolls map[string]*roll
	// marks are by name.
	marks map[string]mark
	// reserves have the grants of groups' tenants, by name.
	reserves map[string]map[string]*grant
	// run counts restarts.
	run   int
	calls int
}

// value is a key's: a word, a log, or the text of another program.
type value struct {
	word  uint64
	notes notes
	log   *log
	// units are in flight.
	units   units
	foreign string
}

// grant is a tenant's of a group's reserve, until it has owed nothing for a while.
type grant struct {
	store.Grant
	until policy.Instant
}

// New returns a Redis without keys. It must be called in the bubble of its callers.
func New() *Redis {
	redis := &Redis{keys: map[string]*value{}, blocks: map[string]uint64{}, rolls: map[string]*roll{}, marks: map[string]mark{}, reserves: map[string]map[string]*grant{}}
	redis.weather.changed = make(chan struct{})
	return redis
}

// Store returns a store with the Redis.
func (r *Redis) Store(options store.Options) *Store {
	if options.Epoch.IsZero() {
		options.Epoch = store.DefaultEpoch
	}
	store := &Store{redis: r, options: options, rule: options.Penalty, blocks: "ral:" + options.Name + ":block:"}
	if options.Tag != "" {
		store.blocks += "{" + options.Tag + "}"
	}
	return store
}

// Set changes the way to the Redis. Connections do not count: Gone fails calls, and Short loses
// their answers.
func (r *Redis) Set(weather redistest.Weather) {
	r.weather.Lock()
	defer r.weather.Unlock()
	r.weather.Weather = weather
	close(r.weather.changed)
	r.weather.changed = make(chan struct{})
}

// SetUnfit has every call fail with the error, or none for nil.
func (r *Redis) SetUnfit(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unfit = err
}

// Calls returns how many calls were made so far: a call of several keys is one.
func (r *Redis) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// Word returns a key's word.
func (r *Redis) Word(limit *store.Limit, key string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value(limit, store.Tail(key)).word
}

// Notes returns how many changes are noted beside a key's word.
func (r *Redis) Notes(limit *store.Limit, key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.value(limit, store.Tail(key)).notes.all)
}

// SetWord replaces a key's word.
func (r *Redis) SetWord(limit *store.Limit, key string, word uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value(limit, store.Tail(key)).word = word
}

// SetBlock replaces the word of a key's block: see package penalty.
func (r *Redis) SetBlock(limit *store.Limit, key string, word uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, name := limit.Names(store.Tail(key))
	r.blocks[name] = word
}

// SetForeign puts the text of another program under a key's name. The empty text removes it.
func (r *Redis) SetForeign(limit *store.Limit, key, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value(limit, store.Tail(key)).foreign = text
}

// value returns a key's value. r.mu is held.
func (r *Redis) value(limit *store.Limit, tail string) *value {
	name, _ := limit.Names(tail)
	v := r.keys[name]
	if v == nil {
		v = &value{}
		if of, ok := limit.Policy().(*slidinglog.Log); ok {
			v.log = &log{per: int64(wholeMicros(of.Per))}
		}
		r.keys[name] = v
	}
	// Limits of one period share a log.
	if v.log != nil {
		v.log.limit = limit.Policy().Limit()
	}
	return v
}

// markFor returns the mark of a limit at that time, a new one if there is none, and keeps that if told to.
func (r *Redis) markFor(limit *store.Limit, keep bool, now int64) mark {
	name, term, _, _ := limit.InFlight()
	m, there := r.marks[name]
	if there && now <= m.till {
		return m
	}
	m = mark{now + int64(term), now + 2*int64(term)}
	if keep {
		r.marks[name] = m
	}
	return m
}

func (v *value) fault(tail string) error {
	if v.foreign == "" {
		return nil
	}
	return fmt.Errorf("%w: key %s holds %q", store.ErrForeignValue, store.Fingerprint(tail), v.foreign)
}

var errLost = errors.New("the connection ended")

// call has the Redis do something at one instant, on its way there and back. Without an answer before
// ctx ends it may be done all the same.
func (r *Redis) call(ctx context.Context, do func()) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrAsking, err)
	}
	ended := make(chan error, 1)
	travel := func() {
		if err := r.travel(true); err != nil {
			ended <- err
			return
		}
		r.mu.Lock()
		err := r.unfit
		r.calls++
		if err == nil {
			do()
		}
		r.mu.Unlock()
		if lost := r.travel(false); lost != nil {
			err = lost
		}
		ended <- err
	}
	if w, _ := r.now(); w == (redistest.Weather{}) || w.Gone {
		travel()
	} else {
		go travel()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrAsking, ctx.Err())
	}
}

func (r *Redis) now() (redistest.Weather, <-chan struct{}) {
	r.weather.Lock()
	defer r.weather.Unlock()
	return r.weather.Weather, r.weather.changed
}

// travel waits until a request or answer has arrived.
func (r *Redis) travel(request bool) error {
	for begun := time.Now(); ; {
		weather, changed := r.now()
		held, takes := weather.Mute || weather.Hole, weather.Answers
		if request {
			held, takes = weather.Deaf || weather.Hole, weather.Asks
		}
		rest := takes - time.Since(begun)
		switch {
		case weather.Gone, weather.Short > 0 && !request:
			return fmt.Errorf("%w: %w", store.ErrAsking, errLost)
		case !held && rest <= 0:
			return nil
		case held:
			<-changed
			// A message that is lost in the hole does not arrive.
			if weather.Hole {
				return fmt.Errorf("%w: %w", store.ErrAsking, errLost)
			}
		default:
			timer := time.NewTimer(rest)
			select {
			case <-timer.C:
			case <-changed:
			}
			timer.Stop()
		}
	}
}

func (s *Store) now() policy.Instant {
	if s.options.Clock != nil {
		return policy.Instant(s.options.Clock()) * 1000
	}
	return policy.Instant(time.Since(s.options.Epoch).Truncate(time.Microsecond)) // wall: in bubbles alone
}
