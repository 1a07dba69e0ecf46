package fleet

import (
	"time"

	"github.com/ral-limiter/ral/limits"
)

// Stats is a snapshot of a limiter's counters. All except Servers, Divisor, Waiting, Outage,
// Breakers, OpenBreakers and HalfOpenBreakers only grow. The counts are exact, but read one after the other
// while calls go on.
type Stats struct {
	Admitted uint64 // calls that were allowed
	// Refused counts calls that were not. It is the sum of OverLimit, Blocked and Unavailable.
	Refused uint64
	// OverLimit counts those refused by the limit, a lease or this server's share.
	OverLimit uint64
	// Blocked counts those refused because their key was blocked.
	Blocked uint64
	// Unavailable counts those refused because Redis was away: by FallbackClosed, or for want
	// of a share. See ErrUncounted.
	Unavailable uint64
	// Blocks counts calls of Block that succeeded, and Penalties blocks that Config.Penalty made
	// by calls of this server.
	Blocks, Penalties uint64

	// How they were answered: see Source. A call that looks without taking is counted
	// in none.
	Exact, Leased, Local, Open, Closed uint64

	Misfits uint64 // calls in error because of a limit that PolicyFor or TakeWith brought: see ErrMisfit; these are in no other count
	Servers int    // that were counted last, this one included; Config.Servers before
	Divisor int    // by which FallbackShare divides the limit: see Config.Servers; 0 if that is not known yet

	Waiting int // calls of this server that wait now, or that may have to when they are answered
	// Waits counts the calls of Wait and Acquire that had to wait and have ended,
	// with their units or without. WaitTime adds up how long each of them took.
	Waits    uint64
	WaitTime time.Duration

	// Outage reports whether calls are answered without Redis now: all of them, or those of a
	// node of a cluster. Health says why.
	Outage bool
	// Breakers is the number of circuit breakers: one, and in a cluster one more for each node
	// that is known. OpenBreakers counts those that let no call pass, except one now and then that
	// tries whether Redis is back. HalfOpenBreakers counts those of OpenBreakers that have such a
	// call under way.
	Breakers, OpenBreakers, HalfOpenBreakers int
	Openings                                 uint64 // how often the breaker opened; of a cluster, those of all nodes

	// RoundTrips counts what was sent to Redis and answered, late answers included: calls, of
	// which several may be sent as one, and what the limiter asks for itself. RedisTime adds up
	// the times from sending to the answer. FailedTrips counts what was sent and not answered,
	// because a connection failed or the time was up.
	RoundTrips  uint64
	RedisTime   time.Duration
	FailedTrips uint64

	Charged uint64 // units that were let pass without Redis and charged when it was back, or may be: the answer was lost
	Lapsed  uint64 // units that shares let pass and that never will be charged: their keys made room for others

	// In Leased mode: units that were leased, those of them that were given back, and
	// those that are known to be lost because a lease ended. LapsedUnits were paid and not
	// used; Lapsed, of shares, were used and not paid.
	LeasedUnits, ReturnedUnits, LapsedUnits uint64
}

// Stats returns the limiter's counters.
func (l *Limiter) Stats() Stats {
	t := &l.tally
	s := Stats{
		Admitted: t.admitted.Load(),
		Exact:    t.by[limits.SourceRedis].Load(),
		Local:    t.by[limits.SourceShare].Load(),
		Open:     t.by[limits.SourceOpen].Load(),
		Closed:   t.by[limits.SourceClosed].Load(),
		Charged:  t.charged.Load(),
		Misfits:  t.misfits.Load(),
		Blocks:   t.blocks.Load(), Penalties: t.penalties.Load(),
		OverLimit: t.overLimit.Load(), Blocked: t.blocked.Load(), Unavailable: t.unavailable.Load(),
		Servers: int(l.servers.Load()),
	}
	s.Breakers, s.OpenBreakers, s.HalfOpenBreakers, s.Openings = l.breakers()
	s.RoundTrips, s.RedisTime, s.FailedTrips = l.trips.Read()
	s.Waiting, s.Waits, s.WaitTime = l.waiters.count()
	_, node := l.openNodes()
	s.Outage = !l.closed.Load() && (l.away() != nil || node != nil)
	for _, of := range l.shares() {
		s.Lapsed += of.local.Lapsed()
	}
	if l.local != nil {
		s.Divisor = l.local.Servers()
	}
	if l.leases != nil {
		of := l.leases.Stats()
		s.Admitted += of.Admitted
		s.OverLimit += of.Refused - of.Blocked
		s.Blocked += of.Blocked
		s.Leased = t.by[limits.SourceLease].Load() + of.Admitted + of.Refused
		s.LeasedUnits, s.ReturnedUnits, s.LapsedUnits = of.Leased, of.Returned, of.Lapsed
	}
	s.Refused = s.OverLimit + s.Blocked + s.Unavailable
	return s
}
