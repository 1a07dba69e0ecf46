package inspect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// A walk through all keys takes some tens of milliseconds for a million. These bound the cost of
// walks for any number of requests.
const (
	// keptRows is the number of keys of a walk, for the pages of a list. A limit keeps two walks.
	keptRows = 1000
	// After a walk comes a rest of restTimes its duration, at least minRest: walks take at most a
	// part of a processor for each limit.
	restTimes = 10
	minRest   = time.Second / 2
	// patience is how long a request waits for a walk if there is an older list. If there is none, it
	// waits for firstPatience.
	patience      = 50 * time.Millisecond
	firstPatience = 250 * time.Millisecond
)

var errWalk = errors.New("the keys could not be listed")

var errClosed = errors.New("the handler is closed")

// walks walks through the keys of an engine in the background, one walk at a time, and keeps the
// results. Requests call page; run makes the walks.
type walks[K comparable] struct {
	owing func(n int, after engine.OwingCursor) engine.OwingPage[K]
	// wake has capacity 1: a walk is wanted.
	wake chan struct{}

	closing sync.Once
	// After closed there will be no more walks.
	closed chan struct{}

	mu sync.Mutex
	// first is from the beginning of the list, and deep from the last place requested further on.
	first, deep kept[K]
	ended       chan struct{}
	// No walk begins before rest.
	rest time.Time
}

// kept is a walk that is kept, or nil, and whether another is wanted.
type kept[K comparable] struct {
	walk   *walk[K]
	wanted bool
	// from is the start of the wanted walk.
	from engine.OwingCursor
}

// slot returns the walk that is kept for a cursor.
func (w *walks[K]) slot(from engine.OwingCursor) *kept[K] {
	if from.IsZero() {
		return &w.first
	}
	return &w.deep
}

type walk[K comparable] struct {
	from engine.OwingCursor
	page engine.OwingPage[K]
	// fault is the reason that there is no page, or nil.
	fault error
	// end is the time at which the walk ended.
	end time.Time
	// until is the time until which the walk serves pages without a new walk.
	until time.Time
}

func newWalks[K comparable](limiter *engine.Engine[K]) *walks[K] {
	return &walks[K]{owing: limiter.MostUsed, wake: make(chan struct{}, 1), ended: make(chan struct{}), closed: make(chan struct{})}
}

func (w *walks[K]) close() { w.closing.Do(func() { close(w.closed) }) }

func (w *walks[K]) run(ctx context.Context) {
	for {
		from, rest, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(rest):
			w.walk(from)
		case <-ctx.Done():
			return
		}
	}
}

// next returns the start of the next walk and the rest before it. ok is false if none is wanted.
func (w *walks[K]) next() (from engine.OwingCursor, rest time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kept := range []*kept[K]{&w.first, &w.deep} {
		if kept.wanted {
			return kept.from, time.Until(w.rest), true
		}
	}
	return from, 0, false
}

// walk walks through the keys. PolicyFor may panic or end the goroutine: the supervisor restarts
// it.
func (w *walks[K]) walk(from engine.OwingCursor) {
	made := &walk[K]{from: from, fault: fmt.Errorf("%w: a limit or PolicyFor ended the goroutine", errWalk)}
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			made.fault = fmt.Errorf("%w: panic: %.200s", errWalk, fmt.Sprint(p))
		}
		made.end = time.Now()
		made.until = made.end.Add(max(minRest, restTimes*made.end.Sub(began)))
		w.keep(made)
	}()
	made.page = w.owing(keptRows, from)
	made.fault = nil
}

func (w *walks[K]) keep(made *walk[K]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.slot(made.from)
	kept.walk = made
	// Another walk may be wanted by now.
	kept.wanted = kept.wanted && !same(kept.from, made.from)
	w.rest = made.until
	close(w.ended)
	w.ended = make(chan struct{})
}

// page returns the walk with the page after a cursor, nil if none yet, and the index of the page's
// first key. If that walk is old or missing, page asks for a new one, and waits briefly.
func (w *walks[K]) page(ctx context.Context, after engine.OwingCursor) (found *walk[K], i int, err error) {
	began := time.Now()
	for {
		w.mu.Lock()
		found, i = w.find(after)
		if found != nil && time.Now().Before(found.until) {
			w.mu.Unlock()
			break
		}
		w.want(after)
		ended := w.ended
		w.mu.Unlock()
		wait := patience
		if found == nil {
			wait = firstPatience
		}
		if wait -= time.Since(began); wait <= 0 {
			break
		}
		select {
		case <-ended:
		case <-w.closed:
			if found == nil {
				return nil, 0, errClosed
			}
			return found.served(i)
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	if found == nil {
		return nil, 0, nil
	}
	return found.served(i)
}

func (w *walk[K]) served(first int) (of *walk[K], i int, err error) {
	if w.fault != nil {
		return nil, 0, w.fault
	}
	return w, first, nil
}

// find returns the newest walk with the page after a cursor, and its index there.
func (w *walks[K]) find(after engine.OwingCursor) (found *walk[K], i int) {
	for _, other := range []*walk[K]{w.first.walk, w.deep.walk} {
		if other == nil || found != nil && found.until.After(other.until) {
			continue
		}
		if at, ok := other.find(after); ok {
			found, i = other, at
		}
	}
	return found, i
}

// find returns the index of the first key after a cursor, if it is in the walk.
func (w *walk[K]) find(after engine.OwingCursor) (i int, ok bool) {
	if same(w.from, after) {
		return 0, true
	}
	for i := range w.page.Keys {
		if same(w.page.Keys[i].After, after) {
			return i + 1, i+1 < len(w.page.Keys) || w.page.Next.IsZero()
		}
	}
	return 0, false
}

// same reports whether two cursors are the same place. It compares text, since a NaN is not equal
// to itself and would make every walk seem to be elsewhere.
func same(a, b engine.OwingCursor) bool {
	if a == b {
		return true
	}
	one, err := a.MarshalText()
	other, otherErr := b.MarshalText()
	return err == nil && otherErr == nil && string(one) == string(other)
}

// want asks for a walk. Of the places further on in the list, only the last wanted place is walked
// from.
func (w *walks[K]) want(after engine.OwingCursor) {
	kept := w.slot(after)
	kept.wanted, kept.from = true, after
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
