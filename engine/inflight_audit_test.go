package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// usedUnits are the units of a call, as its caller knows them.
type usedUnits struct {
	n int64
	// They count until certain, and perhaps until possible: a part of the longest time more.
	certain, possible policy.Instant
	r                 *Reservation[string] // nil if the caller has no handle, or has given it back
}

// crew audits an engine from outside. It knows of each key what its callers have in use.
type crew struct {
	t       *testing.T
	e       *Engine[string]
	clock   *handClock
	random  *rand.Rand
	limit   policy.Policy
	longest time.Duration
	changes int
	units   map[string][]*usedUnits
	count   crewCount
}

type crewCount struct{ taken, refused, released, extended, overstayed, resets, changes, full, killed, evicted uint64 }

// bounds returns the least and the greatest number of units that the engine may count now.
func (c *crew) bounds(key string) (least, greatest int64) {
	now := c.clock.Now()
	kept := c.units[key][:0]
	for _, u := range c.units[key] {
		if now < u.certain {
			least += u.n
		}
		if now < u.possible {
			greatest += u.n
		}
		if now < u.possible || u.r != nil {
			kept = append(kept, u)
		}
	}
	c.units[key] = kept
	return least, greatest
}

func (c *crew) counts(key, after string) {
	least, greatest := c.bounds(key)
	d := c.e.Peek(key, 0)
	used := d.Limit - d.Remaining
	require.Equal(c.t, c.limit.Limit(), d.Limit)
	require.LessOrEqual(c.t, min(least, d.Limit), used, "after %s: units of %s in use are not counted", after, key)
	require.LessOrEqual(c.t, used, greatest, "after %s: units of %s are counted and not in use", after, key)
}

// took checks the answer to a call for n units, and records them.
func (c *crew) took(key string, n int64, allowed bool, r *Reservation[string], before Stats) {
	least, greatest := c.bounds(key)
	if !allowed {
		c.count.refused++
		if s := c.e.Stats(); s.Full+s.Unavailable > before.Full+before.Unavailable {
			require.Zero(c.t, least, "a key with units in use must be known")
			c.count.full++
			return
		}
		require.Greater(c.t, greatest+n, c.limit.Limit(), "%d units of %s are refused", n, key)
		return
	}
	c.count.taken++
	require.LessOrEqual(c.t, least+n, c.limit.Limit(), "%d units of %s are admitted above the limit", n, key)
	u := &usedUnits{n: n, r: r}
	u.begin(c)
	c.units[key] = append(c.units[key], u)
}

func (u *usedUnits) begin(c *crew) {
	u.certain = c.clock.Now() + policy.Instant(c.longest)
	u.possible = u.certain + policy.Instant(c.longest) + 16
}

// some returns units of the key with a handle, or nil.
func (c *crew) some(key string) *usedUnits {
	units := c.units[key]
	if len(units) == 0 {
		return nil
	}
	if u := units[c.random.IntN(len(units))]; u.r != nil {
		return u
	}
	return nil
}

func (c *crew) release(u *usedUnits) {
	before, now := c.e.Stats().Overstayed, c.clock.Now()
	switch c.random.IntN(4) {
	case 0:
		u.r.Cancel()
	case 1:
		u.r.Keep(c.random.Int64N(3))
	default:
		u.r.Release()
		u.r.Release()
	}
	c.count.released++
	over := c.e.Stats().Overstayed - before
	if c.count.overstayed += over; now < u.certain {
		require.Zero(c.t, over, "units in use must be found")
	}
	if now < u.certain {
		u.possible = now
	}
	u.certain, u.r = min(u.certain, now), nil
}

func (c *crew) extend(u *usedUnits) {
	now := c.clock.Now()
	ok := u.r.Extend()
	c.count.extended++
	switch {
	case ok:
		require.Less(c.t, now, u.possible, "a unit that has ended must not be extended")
		u.begin(c)
	default:
		require.GreaterOrEqual(c.t, now, u.certain, "a unit in use must be extended")
		u.certain, u.r = min(u.certain, now), nil
	}
}

func (c *crew) setPolicy() {
	to := c.limit
	if c.random.IntN(3) > 0 || c.changes == 60 { // beyond 64 changes of the longest time no take is followed
		to = policy.Must(policy.InFlight(1+c.random.Int64N(12), c.longest))
	} else {
		to = policy.Must(policy.InFlight(1+c.random.Int64N(12), time.Duration(1+c.random.Int64N(1000))*time.Millisecond))
	}
	now := c.clock.Now()
	require.NoError(c.t, c.e.SetPolicy(to))
	c.count.changes++
	c.limit = to
	longest := policy.Must(policy.InFlight(1, c.longest))
	if to.(policy.Relative).Reads(longest) {
		return
	}
	c.changes++
	c.longest = policy.MaxTimeInUse(to)
	for _, units := range c.units {
		for _, u := range units {
			if now < u.certain {
				u.begin(c)
			} else if now < u.possible {
				u.possible = now + 2*policy.Instant(c.longest) + 16
			}
		}
	}
}

// Each unit is known from outside: by its key, its take, and what became of it. Keys come and go in a table
// that is too small for all, the limit and its longest time change, and the writer dies.
//
// Promise: In 10^6 random takes, releases, extensions, overstays, evictions, deaths of the writer, changes of the limit and resets, an engine counts each unit in use, no other, and none at the end.
func TestInFlightByOutsideAudit(t *testing.T) {
	seeds, calls := uint64(250), 4000
	if testing.Short() || testenv.Race {
		seeds = 12
	}
	var all crewCount
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 55))
			var f *faults
			var quiet atomic.Bool
			// The engine's goroutines draw from dice, one at a time.
			var faulting sync.Mutex
			dice := rand.New(rand.NewPCG(seed, 56))
			clock := newHandClock()
			f = newFaults(seed%2 == 0)
			c := &crew{
				t: t, clock: clock, random: random, units: map[string][]*usedUnits{},
				limit: policy.Must(policy.InFlight(1+random.Int64N(12), time.Second)), longest: time.Second,
			}
			c.e = open[string](t, Config{
				Policy: c.limit, Clock: clock.Now, MaxKeys: 3, Idle: time.Duration(1+random.Int64N(500)) * time.Millisecond,
				WhenUnavailable: Refuse, Restarts: 1 << 30,
				fault: func(point string) {
					faulting.Lock()
					hits := dice.IntN(150) == 0
					faulting.Unlock()
					if hits && !quiet.Load() {
						f.arm(point, 1)
						f.at(point)
					}
				},
			})
			for range calls {
				clock.Advance(time.Duration(random.Int64N(int64(c.longest))) >> (2 + random.UintN(12)))
				if random.IntN(16) == 0 {
					time.Sleep(time.Duration(random.Int64N(int64(c.e.config.Idle)))) // the janitor's own time
				}
				key, n := string("abcde"[random.IntN(5)]), 1+random.Int64N(3)
				before, what := c.e.Stats(), random.IntN(40)
				u := c.some(key)
				switch {
				case what < 2:
					c.setPolicy()
				case what < 3:
					c.count.resets++
					c.e.Reset(key)
					for _, u := range c.units[key] {
						u.certain, u.possible = 0, 0 // their releases do nothing
					}
				case what < 4:
					to := policy.Must(policy.InFlight(1+random.Int64N(12), c.longest))
					require.NoError(t, c.e.ChangeLimit(key, nil, to, []Keep{KeepUsed, KeepShare}[random.IntN(2)]))
				case what < 7:
					c.took(key, 1, c.e.Choke(key), nil, before)
				case what < 20 || u == nil:
					r := c.e.Reserve(key, n, time.Hour)
					c.took(key, n, r.Allowed, &r, before)
				case what < 24:
					c.extend(u)
				case what < 38:
					c.release(u)
				default: // the caller of u overstays
				}
				c.counts(key, fmt.Sprintf("call %d of seed %d", what, seed))
			}
			quiet.Store(true)
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				for _, u := range slices.Clone(c.units[key]) {
					if u.r != nil {
						c.release(u)
					}
				}
				c.counts(key, "all releases")
			}
			clock.Advance(3 * time.Second)
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				d := c.e.Peek(key, 0)
				require.Equal(t, d.Limit, d.Remaining)
			}
			s := c.e.Stats()
			require.Zero(t, s.Forgiven)
			all.add(c.count, s)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", all)
	for name, n := range map[string]uint64{
		"admitted": all.taken, "refused": all.refused, "released": all.released, "extended": all.extended,
		"overstayed": all.overstayed, "reset": all.resets, "changed": all.changes, "refused by a full table": all.full,
		"killed": all.killed, "evicted": all.evicted,
	} {
		assert.Positive(t, n, "no call was %s, so the test tests nothing", name)
	}
}

func (c *crewCount) add(more crewCount, s Stats) {
	c.taken += more.taken
	c.refused += more.refused
	c.released += more.released
	c.extended += more.extended
	c.overstayed += more.overstayed
	c.resets += more.resets
	c.changes += more.changes
	c.full += more.full
	c.killed += s.Restarts
	c.evicted += s.Evicted
}

// claim is a caller's knowledge of the units that it has in use.
type claim struct {
	n     int64
	until policy.Instant // they count until then, at least
	reset int64          // the key's resets before the take
}

// shelf holds the claims on a key of all callers.
type shelf struct {
	mu     sync.Mutex
	claims map[*claim]bool
	begun  atomic.Int64 // resets
	ended  atomic.Int64
}

// put records a claim, and returns how many units are in use at one instant: no reset has come since their takes.
func (s *shelf) put(c *claim, now func() policy.Instant) (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[c] = true
	at, resets := now(), s.begun.Load()
	for other := range s.claims {
		if other.reset == resets && at < other.until {
			sum += other.n
		}
	}
	return sum
}

func (s *shelf) drop(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, c)
}

// Goroutines take, extend, release and overstay, while the clock moves, keys come and go, the limit and its longest
// time change, keys are reset and the writer dies.
//
// Promise: Whatever overlaps, no key has more units in use than the highest limit in force, and each has none at the end.
func TestInFlightByOutsideAuditOfGoroutines(t *testing.T) {
	for _, mode := range []struct{ resetting, overstaying bool }{{}, {true, false}, {false, true}, {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			const callers, most, longest, keys = 8, 6, time.Second, "abcde"
			calls := 6000
			if testing.Short() || testenv.Race {
				calls = 1000
			}
			clock, f := newHandClock(), newFaults(mode.resetting)
			var quiet atomic.Bool
			e := open[string](t, Config{
				Policy: inFlightOf(most, longest), Clock: clock.Now, MaxKeys: 3, Idle: time.Millisecond, WhenUnavailable: Refuse, Restarts: 1 << 30,
				fault: func(point string) {
					if !quiet.Load() && rand.IntN(100) == 0 {
						f.arm(point, 1)
						f.at(point)
					}
				},
			})
			var shelves [len(keys)]shelf
			for i := range shelves {
				shelves[i].claims = map[*claim]bool{}
			}
			var taken, extended, late atomic.Int64
			together(callers, func(caller int) {
				dice := rand.New(rand.NewPCG(uint64(caller), 57))
				type held struct {
					r Reservation[string]
					c *claim
					s *shelf
				}
				var own []held
				for i := range calls {
					k := dice.IntN(len(keys))
					key, s, n := keys[k:k+1], &shelves[k], 1+dice.Int64N(3)
					if i%16 == caller {
						time.Sleep(time.Millisecond)
						clock.Advance(time.Duration(dice.Int64N(int64(longest) / 64)))
					}
					switch what := dice.IntN(100); {
					case what == 0 && caller == 0:
						assert.NoError(t, e.SetPolicy(inFlightOf(1+dice.Int64N(most), []time.Duration{longest, longest, 2 * longest}[dice.IntN(3)])))
					case what == 1 && mode.resetting:
						s.begun.Add(1)
						e.Reset(key)
						s.ended.Add(1)
					}
					if mode.overstaying && dice.IntN(64) == 0 {
						clock.Advance(longest / 2)
					}
					if len(own) > dice.IntN(3) {
						h := &own[dice.IntN(len(own))]
						h.s.drop(h.c)
						if before := clock.Now(); dice.IntN(2) == 0 {
							h.r.Release()
							*h = own[len(own)-1]
							own = own[:len(own)-1]
						} else if h.r.Extend() {
							extended.Add(1)
							h.c.until = before + policy.Instant(longest)
							h.s.put(h.c, clock.Now)
						} else {
							late.Add(1)
							assert.True(t, clock.Now() >= h.c.until || h.s.begun.Load() != h.c.reset, "units in use are not extended")
						}
					}
					ended := s.ended.Load()
					c := &claim{n: n, reset: s.begun.Load(), until: clock.Now() + policy.Instant(longest)}
					if c.reset != ended {
						c.reset = -1 // a reset is under way
					}
					r := e.Reserve(key, n, 0)
					if !r.Allowed {
						continue
					}
					taken.Add(1)
					assert.LessOrEqual(t, s.put(c, clock.Now), int64(most), "more units of %s are in use than the limit", key)
					own = append(own, held{r, c, s})
				}
				for i := range own {
					own[i].s.drop(own[i].c)
					own[i].r.Release()
				}
			})
			quiet.Store(true)
			for i := range keys {
				d := e.Peek(keys[i:i+1], 0)
				used := d.Limit - d.Remaining
				assert.True(t, mode.overstaying || used == 0, "units of which each was released in time: %d", used)
			}
			clock.Advance(5 * longest)
			for i := range keys {
				d := e.Peek(keys[i:i+1], 0)
				assert.Equal(t, d.Limit, d.Remaining)
			}
			s := e.Stats()
			assert.Zero(t, s.Forgiven)
			t.Logf("%d taken, %d extended, %d too late, %d overstayed, %d restarts, %d evicted", taken.Load(), extended.Load(), late.Load(), s.Overstayed, s.Restarts, s.Evicted)
			assert.Positive(t, min(taken.Load(), extended.Load(), int64(s.Restarts), int64(s.Evicted)))
			assert.True(t, mode.resetting || mode.overstaying == (s.Overstayed > 0))
			assert.Equal(t, mode.overstaying || mode.resetting, late.Load() > 0)
		})
	}
}

func inFlightOf(n int64, longest time.Duration) policy.Policy {
	return policy.Must(policy.InFlight(n, longest))
}
