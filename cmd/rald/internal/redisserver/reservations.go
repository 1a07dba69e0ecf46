package redisserver

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/reservation"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// ReserveConfig bounds what clients hold by RAL.RESERVE.
type ReserveConfig struct {
	// Longest bounds the time from the beginning of a reservation to its deadline, RAL.EXTEND included.
	// A longer time is cut to it. The ID of a reservation that has ended is known for as long. The
	// default is a minute.
	Longest time.Duration
	// Share bounds the units of a reservation as a share of its limit, above 0 up to 1, and at least a
	// unit. A larger reservation is refused for good. The default is a half.
	Share float64
	// MaxIDs bounds the reservations that are known, those that have ended included. All of one key are
	// in one of 16 parts, so a client that fills it leaves the others. When a part is full, the ID that
	// ended first is forgotten; if none has ended, the call is refused until the first deadline. The
	// default is 100,000.
	MaxIDs int
	// RefuseUnknown makes RAL.COMMIT of an unknown ID charge nothing.
	RefuseUnknown bool
}

func (r *ReserveConfig) complete() error {
	r.Longest = cmp.Or(r.Longest, time.Minute)
	r.Share = cmp.Or(r.Share, 0.5)
	r.MaxIDs = cmp.Or(r.MaxIDs, 100_000)
	switch {
	case r.Longest < time.Millisecond:
		return fmt.Errorf("redisserver: Reserve.Longest is %v: a millisecond or more is accepted", r.Longest)
	case !(r.Share > 0 && r.Share <= 1):
		return fmt.Errorf("redisserver: Reserve.Share is %v: above 0, up to 1, is accepted", r.Share)
	case r.MaxIDs < MinIDs:
		return fmt.Errorf("redisserver: Reserve.MaxIDs is %d: %d or more is accepted", r.MaxIDs, MinIDs)
	}
	return nil
}

// maxUnits returns the most units of a limit that a reservation may hold.
func (r *ReserveConfig) maxUnits(limit policy.Policy) int64 {
	all := limit.Limit()
	if r.Share == 1 {
		return all
	}
	return max(int64(r.Share*float64(all)), 1)
}

// MinIDs is the least ReserveConfig.MaxIDs: an ID for each part.
const MinIDs = reservationParts

const (
	// reservationParts is the number of parts that keys are spread over.
	reservationParts = 16
	// expireAtOnce bounds the deadlines that are applied together, and so the time for which commands
	// wait meanwhile.
	expireAtOnce = 64
)

// reservations hold units for clients until a deadline. A command that names a reservation first waits
// until no other command or deadline changes it, so exactly one of them ends it.
type reservations struct {
	config ReserveConfig
	now    func() time.Duration
	seed   maphash.Seed
	parts  [reservationParts]part
	// came counts the reservations that came into each state, and full the calls that were refused since
	// their part was full.
	came [reservation.States]atomic.Uint64
	full atomic.Uint64

	// armed is the instant that run waits for. wake holds a token if run must look again.
	armed atomic.Int64
	wake  chan struct{}
}

// part has the reservations of some of the keys.
type part struct {
	mu   sync.Mutex
	book *book
}

type (
	book   = reservation.Book[*holding]
	record = reservation.Record[*holding]
)

// holding is the units of a reservation. It is guarded by part.mu, and while busy is set by the goroutine
// that has set it.
type holding struct {
	// grant is zero once nothing can settle it any more.
	grant limits.Grant
	// lost is closed once the units in flight are lost: see limits.Grant.Lost. It may be nil.
	lost <-chan struct{}
	// decision is the answer to the call that made the reservation.
	decision policy.Decision
	// err says why the last change may not have been counted.
	err error
	// busy is closed when a change has been applied to the key. It is nil without a change.
	busy chan struct{}
}

// standing is what a command tells of a reservation.
type standing struct {
	state reservation.State
	units int64
	left  time.Duration
}

func newReservations(config ReserveConfig) *reservations {
	begun := time.Now()
	r := &reservations{config: config, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1)}
	r.now = func() time.Duration { return time.Since(begun) }
	for i := range r.parts {
		r.parts[i].book = reservation.New[*holding](config.MaxIDs/reservationParts, config.Longest)
	}
	return r
}

// find locks the part of an ID. Once nothing changes the reservation, and a deadline that has passed is
// applied, it returns the record, or nil, and the instant for which that is so.
func (r *reservations) find(ctx context.Context, id reservation.ID) (home *part, entry *record, now time.Duration) {
	home = &r.parts[maphash.String(r.seed, id.Key)%reservationParts]
	home.mu.Lock()
	for {
		now = r.now()
		entry = home.book.Find(id, now)
		switch {
		case entry == nil:
			return home, nil, now
		case entry.Value.busy != nil:
			busy := entry.Value.busy
			home.mu.Unlock()
			<-busy
			home.mu.Lock()
		case home.book.IsDue(entry, now), entry.State == reservation.Held && entry.Value.isLost():
			r.change(ctx, home, entry, nil, func() int64 { return home.book.Expire(entry, now) })
		default:
			return home, entry, now
		}
	}
}

// isLost reports whether a server that is cut off from Redis has given up the units in flight.
func (v *holding) isLost() bool {
	select {
	case <-v.lost:
		return true
	default: // also without a channel
		return false
	}
}

// occupy has other commands on the reservation wait until free is called. Both need the lock of the part.
func (v *holding) occupy() (free func()) {
	busy := make(chan struct{})
	v.busy = busy
	return func() {
		v.busy = nil
		close(busy)
	}
}

// unlocked calls f without the lock, while other commands on the reservation wait.
func (p *part) unlocked(holding *holding, f func()) {
	free := holding.occupy()
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		free()
	}()
	f()
}

// reserve takes n units, unless the ID is known: then it answers as the call that was first.
func (r *reservations) reserve(
	ctx context.Context, use configured.Use, id reservation.ID, n int64, ttl time.Duration, action reservation.Action,
) (time.Duration, policy.Decision, error) {
	home, entry, now := r.find(ctx, id)
	defer home.mu.Unlock()
	if entry != nil {
		return entry.TimeToLive, entry.Value.decision, nil
	}
	fresh := &holding{}
	longest, _ := maxTimeInFlight(use.Limit)
	entry = home.book.Reserve(id, n, ttl, longest, action, fresh)
	if entry == nil {
		r.full.Add(1)
		retry := max(min(home.book.FirstDeadline()-now, r.config.Longest), time.Millisecond)
		home.unlocked(fresh, func() { fresh.decision, fresh.err = use.Family.TakeWith(ctx, use.Limit, use.Key, 0) })
		fresh.decision.Allowed, fresh.decision.RetryAfter = false, retry
		return 0, fresh.decision, fresh.err
	}
	home.unlocked(fresh, func() {
		fresh.grant, fresh.err = use.Limiter().Hold(ctx, limits.Call[string]{Key: use.Key, N: n, Limit: use.Limit, NoWait: true})
		fresh.decision, fresh.lost = fresh.grant.Decision, fresh.grant.Lost()
	})
	if fresh.err != nil || !fresh.decision.Allowed {
		home.book.Drop(entry)
		return 0, fresh.decision, fresh.err
	}
	home.book.Begin(entry, r.now())
	r.came[reservation.Held].Add(1)
	r.nudge(home)
	return entry.TimeToLive, fresh.decision, nil
}

// commit ends a reservation with the actual units. It charges them all if the ID is unknown.
func (r *reservations) commit(ctx context.Context, use configured.Use, id reservation.ID, actual int64) (standing, error) {
	home, entry, now := r.find(ctx, id)
	defer home.mu.Unlock()
	if entry != nil {
		return r.change(ctx, home, entry, &use, func() int64 { return home.book.Commit(entry, now, actual) })
	}
	if r.config.RefuseUnknown {
		return standing{}, nil
	}
	r.came[reservation.Unknown].Add(1)
	fresh := &holding{}
	if home.book.Charge(id, now, actual, fresh) != nil {
		r.nudge(home)
	}
	home.unlocked(fresh, func() { fresh.decision, fresh.err = use.Refund(ctx, -actual) })
	return standing{units: actual}, fresh.err
}

// changeKnown changes a reservation by f, if the ID is known: see change.
func (r *reservations) changeKnown(ctx context.Context, id reservation.ID, f func(book *book, entry *record, now time.Duration) int64) (standing, error) {
	home, entry, now := r.find(ctx, id)
	defer home.mu.Unlock()
	if entry == nil {
		return standing{}, nil
	}
	return r.change(ctx, home, entry, nil, func() int64 { return f(home.book, entry, now) })
}

// change changes a record by f, which returns the units that counted before, and applies the difference to
// the key. The caller holds the lock of the part. use is needed where the units may become more.
func (r *reservations) change(ctx context.Context, home *part, entry *record, use *configured.Use, f func() int64) (standing, error) {
	state := entry.State
	before := f()
	if entry.State != state {
		r.came[entry.State].Add(1)
		r.nudge(home)
	}
	holding, counted := entry.Value, entry.Counted
	if counted != before {
		home.unlocked(holding, func() { holding.settle(ctx, use, before, counted) })
	}
	if entry.State != reservation.Held && entry.State != reservation.Expired {
		holding.grant = limits.Grant{}
	}
	return standing{entry.State, counted, entry.Left(r.now())}, holding.err
}

// settle makes counted units count where before did.
func (v *holding) settle(ctx context.Context, use *configured.Use, before, counted int64) {
	if counted < before {
		v.err = v.grant.Settle(ctx, counted)
		return
	}
	_, v.err = use.Refund(ctx, before-counted)
}

// nudge has run look again if the part is due before the instant that run waits for.
func (r *reservations) nudge(home *part) {
	if int64(home.book.Next()) >= r.armed.Load() {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run applies deadlines until the context ends. A command that comes between a deadline and its turn here
// applies the deadline by itself.
func (r *reservations) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		timer.Reset(r.expire())
	}
}

// expire applies all deadlines that have passed, and returns the time until there is more to do.
func (r *reservations) expire() time.Duration {
	// A command meanwhile wakes run again.
	r.armed.Store(math.MaxInt64)
	next := time.Duration(math.MaxInt64)
	for i := range r.parts {
		for r.expirePart(&r.parts[i]) {
		}
		r.parts[i].mu.Lock()
		next = min(next, r.parts[i].book.Next())
		r.parts[i].mu.Unlock()
	}
	r.armed.Store(int64(next))
	return max(next-r.now(), 0)
}

// expirePart applies some deadlines of a part. It reports whether more have passed.
func (r *reservations) expirePart(home *part) (more bool) {
	var settling sync.WaitGroup
	defer settling.Wait()
	home.mu.Lock()
	defer home.mu.Unlock()
	for range expireAtOnce {
		now := r.now()
		if home.book.Next() > now {
			return false
		}
		entry := home.book.Due(now)
		if entry == nil {
			continue
		}
		before := home.book.Expire(entry, now)
		r.came[entry.State].Add(1)
		if entry.Counted == before {
			continue
		}
		// The goroutine cannot lock the part before all of them are busy.
		holding, counted, free := entry.Value, entry.Counted, entry.Value.occupy()
		settling.Go(func() {
			holding.settle(context.Background(), nil, before, counted)
			home.mu.Lock()
			defer home.mu.Unlock()
			free()
		})
	}
	return true
}

// ReservationStats are the figures of RAL.RESERVE and the commands that follow it.
type ReservationStats struct {
	// Held and Ended are the present numbers of reservations that are known.
	Held, Ended int
	// Came counts reservations since New by each state that they came into. reservation.Unknown are
	// charges without a reservation.
	Came [reservation.States]uint64
	// Forgotten counts reservations that were forgotten early, and Full calls that were refused, for want
	// of room.
	Forgotten, Full uint64
}

func (r *reservations) stats() (reservationStats ReservationStats) {
	for i := range r.parts {
		home := &r.parts[i]
		home.mu.Lock()
		all, held := home.book.Len()
		reservationStats.Held, reservationStats.Ended, reservationStats.Forgotten = reservationStats.Held+held, reservationStats.Ended+all-held, reservationStats.Forgotten+home.book.Forgotten()
		home.mu.Unlock()
	}
	for state := range r.came {
		reservationStats.Came[state] = r.came[state].Load()
	}
	reservationStats.Full = r.full.Load()
	return reservationStats
}
