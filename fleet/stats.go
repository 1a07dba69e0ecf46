package fleet

import (
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
)

// Stats is a snapshot of exact counters, read one by one while calls go on. Only Servers, Divisor,
// Waiting, HeldUnits, Outage, Breakers, OpenBreakers and HalfOpenBreakers may shrink.
type Stats struct {
	// Admitted counts the allowed calls.
	Admitted uint64
	// Refused counts refused calls: the sum of OverLimit, Blocked and Unavailable.
	Refused uint64
	// OverLimit counts the calls refused by the limit, a lease or this server's share.
	OverLimit uint64
	// Blocked counts the calls refused because the key was blocked.
	Blocked uint64
	// Unavailable counts refusals without Redis: by FallbackClosed, or without a share
	// (ErrUncounted).
	Unavailable uint64
	// Blocks counts successful calls of Block, Penalties blocks by Config.Penalty for calls here.
	Blocks, Penalties uint64

	// Warnings counts the warnings of keys that passed a share of Config.WarnAt: see there.
	Warnings uint64

	// Calls by how they were answered: see Source. Looks without taking are not counted.
	Exact, Leased, Local, Open, Closed uint64

	// Misfits counts the calls in error for their limit, which are in no other count: see ErrMisfit.
	Misfits uint64
	// Servers is the number of servers counted last, with this server. Before that it is Config.Servers.
	Servers int
	// Divisor is the number by which FallbackShare divides the limit, 0 if not known yet: see
	// Config.Servers.
	Divisor int

	// Waiting is the number of calls of this server that wait now, or may have to once answered.
	Waiting int
	// Waits counts ended calls of Wait and Acquire that had to wait. WaitTime adds up their times.
	Waits    uint64
	WaitTime time.Duration

	// Outage reports whether calls, all or a node's, are answered without Redis now: see Health.
	Outage bool
	// Breakers counts circuit breakers: one, and another for each known node of a cluster.
	// OpenBreakers counts breakers that let only probes pass, HalfOpenBreakers open breakers with a
	// probe under way.
	Breakers, OpenBreakers, HalfOpenBreakers int
	// Openings counts the openings of breakers, over all nodes.
	Openings uint64

	// RoundTrips counts requests to Redis that were answered, also late; calls sent together are
	// one. RedisTime adds up their times. FailedTrips counts requests without an answer, because a
	// connection failed or the time was up.
	RoundTrips  uint64
	RedisTime   time.Duration
	FailedTrips uint64

	// Charged counts the units let pass without Redis and charged later, perhaps without an answer.
	Charged uint64
	// Excess counts the units of Charged that were above their key's limit when they were charged, 0 under a
	// Bursty. Redis and leases keep the bound to the unit. So shares exceeded it by at least Excess units, and
	// at most Charged plus Lapsed. Units of calls that FallbackOpen let pass are in none of these.
	Excess uint64
	Lapsed uint64 // units let pass by shares and never charged: their keys made room for others

	// In Leased mode: units leased, given back, and known to be lost by the end of a lease.
	// LapsedUnits were paid and not used; Lapsed, of shares, were used and not paid.
	LeasedUnits, ReturnedUnits, LapsedUnits uint64

	// Under a limit in flight: HeldUnits are in use by this server's calls now. LostUnits were given up
	// since Redis could not be asked: see Reservation.Lost. OverstayedUnits were released after they had
	// ended or were given back on another server.
	HeldUnits                  int
	LostUnits, OverstayedUnits uint64
}

// Servers returns Stats.Servers, or Stats.Divisor if that is more and either a share's guess refused the
// call or Redis is away. Turns of refused calls are so many times further apart. A guess counts by
// itself, since the first calls that Redis leaves without an answer are refused before it is known to be away.
func (l *Limiter) Servers(guess bool) int {
	servers := int(l.servers.Load())
	if open, _ := l.guard.Open(); guess || open || l.trouble.Load() != nil {
		servers = max(servers, int(l.divisor.Load()))
	}
	return servers
}

// LatestWarnings returns the last warnings of this server, the newest first: at most n, and at most
// 64. See Config.WarnAt.
func (l *Limiter) LatestWarnings(n int) []engine.Warning[string] {
	if l.warned == nil {
		return nil
	}
	return l.warned.list.Newest(n)
}

// Stats returns the limiter's counters.
func (l *Limiter) Stats() Stats {
	tally := &l.tally
	stats := Stats{
		Admitted: tally.admitted.Load(),
		Exact:    tally.by[limits.SourceRedis].Load(),
		Local:    tally.by[limits.SourceShare].Load(),
		Open:     tally.by[limits.SourceOpen].Load(),
		Closed:   tally.by[limits.SourceClosed].Load(),
		Charged:  tally.charged.Load(),
		Excess:   tally.excess.Load(),
		Misfits:  l.misfits.Load(),
		Blocks:   tally.blocks.Load(), Penalties: tally.penalties.Load(),
		OverLimit: tally.overLimit.Load(), Blocked: tally.blocked.Load(), Unavailable: tally.unavailable.Load(),
		Servers: int(l.servers.Load()), Divisor: int(l.divisor.Load()),
	}
	stats.Breakers, stats.OpenBreakers, stats.HalfOpenBreakers, stats.Openings = l.breakers()
	stats.RoundTrips, stats.RedisTime, stats.FailedTrips = l.trips.Read()
	stats.Waiting, stats.Waits, stats.WaitTime = l.waiters.count()
	_, node := l.openNodes()
	stats.Outage = !l.closed.Load() && (l.away() != nil || node != nil)
	if l.warned != nil {
		stats.Warnings = l.warned.list.Count()
	}
	for _, terms := range l.shares() {
		stats.Lapsed += terms.local.Lapsed()
	}
	if l.slots != nil {
		stats.HeldUnits, stats.LostUnits, stats.OverstayedUnits = l.slots.held(), l.slots.lost.Load(), l.slots.overstayed.Load()
	}
	if l.leased != nil {
		leases := l.leased.leases.Stats()
		stats.Admitted += leases.Admitted
		stats.OverLimit += leases.Refused - leases.Blocked
		stats.Blocked += leases.Blocked
		stats.Leased = tally.by[limits.SourceLease].Load() + leases.Admitted + leases.Refused
		stats.LeasedUnits, stats.ReturnedUnits, stats.LapsedUnits = leases.Leased, leases.Returned, leases.Lapsed
	}
	stats.Refused = stats.OverLimit + stats.Blocked + stats.Unavailable
	return stats
}
