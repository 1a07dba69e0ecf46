package store

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// New returns a store that uses the client. New sends nothing to Redis.
func New(client rueidis.Client, options Options) *Store {
	if options.Epoch.IsZero() {
		options.Epoch = DefaultEpoch
	}
	store := &Store{client: client, options: options, rule: newRule(options.Penalty)}
	store.blocks = options.name("block:")
	store.scripts.read = store.newScript("local key = KEYS[1]\n", timeLua, readLua,
		"return {w, us, h < 0 and -1 or 0}\n")
	store.scripts.look = store.newScript("local key = KEYS[1]\n", timeLua, readLua,
		"return {w, us, h < 0 and -1 or 0, redis.call('GET', KEYS[2])}\n")
	store.scripts.lock = store.newScript("local key = KEYS[1]\n", timeLua, store.rule.local(),
		strings.Replace(lua("lock"), "BLOCK", blockLua, 1))
	store.scripts.soon = store.newScript("local key = KEYS[1]\n", timeLua,
		"if us > ARGV[4] + 0 then return -1 end\n", lua("swap"))
	store.scripts.all = store.allScript()
	store.scripts.tenant = store.tenantScript()
	store.scripts.relog = store.relogScript()
	store.scripts.beat = store.newScript(timeLua, fill(lua("inflightbeat")))
	store.scripts.confirm = store.newScript(timeLua, fill(lua("inflightconfirm")))
	store.scripts.leave = store.newScript(timeLua, lua("inflightleave"))
	store.scripts.heartbeat = store.newScriptFrom(0, "local key = KEYS[1]\n", timeLua, lua("heartbeat"))
	return store
}

// Limit prepares a policy, or returns a *policy.FieldError. Redis can decide Funnel, Queue, Bursty,
// FixedWindow, InFlight, fleet.SlidingLog, and SlidingWindow and AlignedWindow of whole microseconds
// (SlidingWindow from a millisecond on).
func (s *Store) Limit(limit policy.Policy) (*Limit, error) {
	refuse := func(want string) (*Limit, error) {
		return nil, &policy.FieldError{Of: "fleet.Config", Field: "Policy", Value: limit, Want: want}
	}
	if shape.IsNil(limit) {
		return refuse("a policy")
	}
	if log, ok := limit.(*slidinglog.Log); ok {
		return &Limit{
			policy: limit, blocks: s.blocks, rule: s.rule, log: log, limit: log.Limit(), take: s.logTakeScript(), back: s.scripts.relog,
			prefix: s.options.name(fmt.Sprintf("l%d:", log.Per)),
		}, nil
	}
	if longest, ok := InFlightFor(limit); ok {
		return s.inFlightLimit(limit, longest)
	}
	if anchored, ok := limit.(policy.Anchored); ok {
		limit = anchored.Anchor(s.options.Epoch)
	}
	shaped, ok := limit.(shape.Shaped)
	if !ok || shaped.Shape().Kind == 0 {
		return refuse("a funnel, queue, bursty, sliding, in flight, or a window without weeks, months and years; a fleet.SlidingLog keeps the promise of at most")
	}
	l := &Limit{policy: limit, blocks: s.blocks, rule: s.rule, shape: shaped.Shape()}
	family := map[shape.Kind]string{shape.Funnel: "f", shape.Queue: "q", shape.Bursty: "b"}[l.shape.Kind]
	switch l.shape.Kind {
	case shape.FixedWindow:
		if l.shape.Bits > maxFixedBits {
			return refuse("a window of at most 1000000 units, or an aligned window of more")
		}
		family = fmt.Sprintf("w%d-%d", l.shape.Per, l.shape.Bits)
	case shape.SlidingWindow:
		if l.shape.Per < minSliding || l.shape.Per%time.Microsecond != 0 {
			return refuse("a sliding window with a period of a millisecond or more, in whole microseconds, the unit of Redis's clock")
		}
		family = fmt.Sprintf("s%d", l.shape.Per)
	case shape.AlignedWindow:
		switch {
		case l.shape.Per%time.Microsecond != 0:
			return refuse("an aligned window with a period of whole microseconds, the unit of Redis's clock")
		case l.shape.Limit > maxAligned:
			return refuse(fmt.Sprintf("an aligned window of at most %d units", int64(maxAligned)))
		}
		family = fmt.Sprintf("a%d", l.shape.Per)
	}
	l.limit = l.shape.Limit
	l.prefix = s.options.name(family + ":")
	l.take = s.takeScript(algorithms[l.shape.Kind])
	l.back = s.backScript(refunders[l.shape.Kind], l.notes())
	if l.notes() {
		l.noting = s.takeScript(paceNoting, noteLua)
	}
	l.charge = s.chargeScript(refunders[l.shape.Kind])
	l.one = packed(l.figures(1, 0))
	switch l.shape.Kind {
	case shape.Funnel, shape.FixedWindow, shape.SlidingWindow:
		l.lease = s.leaseScript(l.shape.Kind)
	}
	return l, nil
}

// DefaultEpoch is the instant from which policies count time, unless Options.Epoch is set.
var DefaultEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
