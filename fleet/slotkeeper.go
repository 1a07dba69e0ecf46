package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

const (
	// beatsPerTerm is how often in a term a server confirms its slots.
	beatsPerTerm = 5
	// fencesPerTerm is how often in a term a server looks for slots that are lost: twice in a slots.Book's
	// margin.
	fencesPerTerm = 20
)

// slotKeeper keeps the slots of this server under a limit in flight: it confirms them in Redis, and gives them
// up before Redis may forget them. Package slots decides; this type has the lock, the clock and the goroutines.
type slotKeeper struct {
	*access
	*catalog
	waiters *waiters

	term time.Duration
	// name begins the IDs of this server's slots.
	name   string
	serial atomic.Uint64
	begun  time.Time
	// hurry has a slot: the next beat is due at once.
	hurry chan struct{}
	ended sync.WaitGroup

	// lost and overstayed count units.
	lost, overstayed atomic.Uint64

	mu struct {
		sync.Mutex
		book *slots.Book
	}
}

func newSlotKeeper(access *access, catalog *catalog, w *waiters) *slotKeeper {
	keeper := &slotKeeper{
		access: access, catalog: catalog, waiters: w, term: catalog.config.Term, name: rand.Text(), begun: time.Now(), hurry: make(chan struct{}, 1),
	}
	keeper.mu.book = slots.New(keeper.term)
	return keeper
}

// newID names n units of a call.
func (s *slotKeeper) newID(n int64) string {
	return fmt.Sprintf("%s-%d.%d", s.name, s.serial.Add(1), n)
}

// link is a number for the connection to Redis: behind another there may be another Redis.
func (s *slotKeeper) link() uint64 { return uint64(s.conn.dials.Load()) + s.guard.Openings() }

// do has the book decide something now, after it gave up the slots that are lost.
func (s *slotKeeper) do(decide func(book *slots.Book, now slots.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := slots.Time(time.Since(s.begun))
	s.giveUp(s.mu.book.Fence(now))
	decide(s.mu.book, now)
}

func (s *slotKeeper) giveUp(lost []*slots.Slot) {
	for _, slot := range lost {
		s.lost.Add(uint64(slot.N))
		close(slot.Lost)
	}
}

// mayEnter returns the request by which a call asks Redis for units now, or why it must not ask.
func (s *slotKeeper) mayEnter() (request slots.Request, err error) {
	s.do(func(book *slots.Book, now slots.Time) {
		if request = book.Ask(now); book.MayEnter(now, s.link()) {
			return
		}
		err = noAnswer{cause: asOutage(errCutOff)}
		wake(s.hurry)
	})
	return request, err
}

// ready reports whether calls may ask Redis for units.
func (s *slotKeeper) ready() (may bool) {
	s.do(func(book *slots.Book, now slots.Time) { may = book.MayEnter(now, s.link()) })
	return may
}

// enter records units that Redis has counted, or returns nil if the answer is too late.
func (s *slotKeeper) enter(ask *ask, request slots.Request) (slot *slots.Slot) {
	s.do(func(book *slots.Book, now slots.Time) {
		slot = book.Enter(ask.key, ask.id, ask.n, request, now, ask.terms.maxUse)
	})
	return slot
}

// enterLocally takes n units of this server's share, if n is not 0. It returns nil if there are fewer. held are
// the units of the key that calls of this server have afterwards.
func (s *slotKeeper) enterLocally(ask *ask, n, share int64) (slot *slots.Slot, held int64) {
	s.do(func(book *slots.Book, now slots.Time) {
		if n > 0 {
			slot = book.EnterLocally(ask.key, ask.id, n, share, now, ask.terms.maxUse)
		}
		held = book.Held(ask.key)
	})
	return slot, held
}

// leave forgets a slot: see slots.Book.Leave.
func (s *slotKeeper) leave(slot *slots.Slot) (held, counted bool) {
	s.do(func(book *slots.Book, _ slots.Time) { held, counted = book.Leave(slot) })
	return held, counted
}

// forget is leave for the slot of an ID. It reports whether this server had it.
func (s *slotKeeper) forget(key, id string) (held bool) {
	s.do(func(book *slots.Book, _ slots.Time) {
		if slot := book.Find(id); slot != nil {
			held, _ = book.Leave(slot)
		}
	})
	s.waiters.wake(key)
	return held
}

func (s *slotKeeper) forgetKey(key string) {
	s.do(func(book *slots.Book, _ slots.Time) { book.LeaveKey(key) })
	s.waiters.wake(key)
}

// held returns the units that calls of this server have in use.
func (s *slotKeeper) held() (units int) {
	s.do(func(book *slots.Book, _ slots.Time) { units = int(book.Len()) })
	return units
}

// giveBack gives back the units of a slot. It gives back no units without a slot, and charges none: only their
// own calls know them. link tells how the key stands.
func (s *slotKeeper) giveBack(ctx context.Context, ask ask, link link) (taken, error) {
	if slot, ok := ask.receipt.(*slots.Slot); ok {
		return taken{}, s.release(ctx, &ask, slot)
	}
	ask.n = 0
	t, err := link.look(ctx, ask)
	t.answer.Allowed = false
	return t, err
}

// release gives the units of a slot back, here and in Redis. Without an answer they leave Redis within a term,
// since this server confirms them no more.
func (s *slotKeeper) release(ctx context.Context, ask *ask, slot *slots.Slot) (err error) {
	held, counted := s.leave(slot)
	wasReleased := slot.Released.Swap(true)
	switch {
	case !held && !wasReleased:
		s.overstayed.Add(uint64(slot.N))
	case held && counted:
		_, err = s.releaseInRedis(ctx, ask.terms, slot.Key, slot.ID, slot.N)
	}
	s.waiters.wake(slot.Key)
	return err
}

// releaseInRedis gives the n units of a slot back, and returns how many still counted.
func (s *slotKeeper) releaseInRedis(ctx context.Context, t *terms, key, id string, n int64) (left int64, err error) {
	left, err = about(ctx, s.access, t, key, func(ctx context.Context, to decider) (int64, error) {
		return to.Release(ctx, t.limit, key, id, n)
	})
	err, _ = forCaller(err)
	return left, err
}

// extend has a slot last longer, and confirms it.
func (s *slotKeeper) extend(ctx context.Context, ask *ask, slot *slots.Slot) (ok bool, err error) {
	var beat slots.Beat
	s.do(func(book *slots.Book, now slots.Time) { beat, ok = book.Extend(slot, now, ask.terms.maxUse) })
	if !ok {
		return false, nil
	}
	confirmed, err := about(ctx, s.access, ask.terms, slot.Key, func(ctx context.Context, to decider) (store.Confirmed, error) {
		return to.Confirm(ctx, ask.terms.limit, beat.Confirms)
	})
	if err != nil {
		err, _ = forCaller(err)
		return true, err
	}
	s.do(func(book *slots.Book, now slots.Time) { book.Confirmed(beat, now, confirmed.Run, confirmed.There) })
	return confirmed.There[0], nil
}

// beat confirms all slots in Redis. It reports whether Redis answered.
func (s *slotKeeper) beat(ctx context.Context) bool {
	remote, err := s.mayAsk(ctx)
	if err != nil {
		return false
	}
	var beat slots.Beat
	var link uint64
	s.do(func(book *slots.Book, now slots.Time) { beat, link = book.Beat(now), s.link() })
	slices.SortFunc(beat.Confirms, func(a, b slots.Confirm) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Run, b.Run))
	})
	own := s.own.Load()
	budget := max(s.budget, min(s.term/beatsPerTerm, callTimeout))
	confirmed, err := guard.DoPatiently(ctx, s.guardOf(own, ""), budget, func(ctx context.Context) (store.Confirmed, error) {
		return remote.store.Confirm(ctx, own.limit, beat.Confirms)
	})
	if s.classify(ctx, err) != nil {
		return false
	}
	s.do(func(book *slots.Book, now slots.Time) { book.Beaten(beat, now, link, confirmed.Run, confirmed.There) })
	return true
}

// start begins to confirm slots and to give them up, until the context ends.
func (s *slotKeeper) start(ctx context.Context) {
	s.ended.Go(func() { s.keepBeating(ctx) })
	s.ended.Go(func() {
		ticker := time.NewTicker(s.term / fencesPerTerm)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.do(func(*slots.Book, slots.Time) {})
			case <-ctx.Done():
				return
			}
		}
	})
}

// keepBeating beats some times a term, and at once if a call must not ask Redis before. While Redis does not
// answer it tries again at growing intervals.
func (s *slotKeeper) keepBeating(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for rest, hurry := pause, s.hurry; ; {
		select {
		case <-timer.C:
		case <-hurry:
		case <-ctx.Done():
			return
		}
		if s.beat(ctx) {
			rest, hurry = pause, s.hurry
			timer.Reset(s.term / beatsPerTerm)
			continue
		}
		timer.Reset(min(rest, s.term/beatsPerTerm))
		rest, hurry = min(2*rest, maxPause), nil
	}
}

// close gives up all slots: nothing confirms them any more. Their units leave Redis within a term.
func (s *slotKeeper) close() {
	s.ended.Wait()
	s.do(func(book *slots.Book, _ slots.Time) { s.giveUp(book.GiveUp()) })
}
