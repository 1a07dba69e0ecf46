package linear

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/test/torture/internal/fault"
)

// Workload describes calls on an engine. The seed determines each client's, not the interleaving.
type Workload struct {
	Seed    uint64
	Clients int
	Ops     int // of all clients together, about
	Kills   bool
}

const (
	// Keys are used in groups, so that many calls meet on each. The turn visits a few groups
	// several times, so that keys come back idle. Others follow, to keep histories short.
	keysPerGroup = 8
	opsPerVisit  = 256
	groups       = 4
	visits       = 3

	ticks   = 32 // calls between two moves of the clock
	lag     = 2  // by so many steps at the most while a call is under way
	yields  = 16 // a call in so many yields between its steps
	maxHeld = 2  // reservations of a client at a time

	// Clients rest now and then, or the janitor's time would never come.
	rests = 32
	rest  = 500 * time.Microsecond
)

// Run runs the workload on a new engine, and returns the calls and the engine's counts.
func (w Workload) Run(scenario *Scenario) ([]Op, engine.Stats, error) {
	sabotage := &fault.Switch{Yield: yields}
	clock := &clock{step: int64(scenario.Step), began: make([]began, w.Clients)}
	clock.now.Store(1)
	config := engine.Config{
		Policy: sabotage.Wrap(scenario.Policy), Idle: scenario.Idle, MaxKeys: scenario.MaxKeys, WhenFull: scenario.WhenFull,
		OpenTimeout: time.Minute, Clock: clock.read, Restarts: 1 << 30,
	}
	e, err := engine.New[int](config)
	if err != nil {
		return nil, engine.Stats{}, err
	}
	l := limiter(e)
	if scenario.Queued {
		l = newQueued(e)
	}
	var events, calls atomic.Int64
	clients := make([]*client, w.Clients)
	var done sync.WaitGroup
	for i := range clients {
		c := &client{
			id: i, l: l, e: e, s: scenario, clock: clock, events: &events,
			dice: rand.New(rand.NewPCG(w.Seed, uint64(i))), ops: make([]Op, 0, w.Ops/w.Clients*3/2),
		}
		clients[i] = c
		done.Go(func() {
			for {
				n := int(calls.Add(1))
				if n > w.Ops {
					return
				}
				c.call(n)
				// A full table that gives up no key gets room from the janitor, met often enough by
				// then.
				full := scenario.Liberty() != Forgives && l.Len() >= scenario.MaxKeys
				if c.dice.IntN(rests) == 0 || full && c.dice.IntN(8) > 0 {
					time.Sleep(rest)
				}
			}
		})
	}
	stop := make(chan struct{})
	var killer sync.WaitGroup
	if w.Kills {
		killer.Go(func() { kill(sabotage, w.Seed, stop) })
	}
	done.Wait()
	close(stop)
	killer.Wait()
	sabotage.Arm(fault.None)
	stats := l.Stats()
	if err := l.Close(); err != nil {
		return nil, stats, err
	}
	if stats.Unavailable > 0 {
		return nil, stats, fmt.Errorf("%d calls were answered as if there were no writer", stats.Unavailable)
	}
	var history []Op
	for _, client := range clients {
		history = append(history, client.ops...)
	}
	return history, stats, nil
}

// limiter is an engine, or queued, whose histories the checker must refuse.
type limiter interface {
	Choke(key int) bool
	Take(key int, n int64) policy.Decision
	Len() int
	Stats() engine.Stats
	Close() error
}

// queued is an engine with a Choke that decides on the word it reads. The keys are charged later.
type queued struct {
	*engine.Engine[int]
	takes   chan int
	charged chan struct{} // closed when all are
}

func newQueued(engine *engine.Engine[int]) *queued {
	q := &queued{engine, make(chan int, 64), make(chan struct{})}
	go func() {
		defer close(q.charged)
		for key := range q.takes {
			engine.Refund(key, -1)
		}
	}()
	return q
}

func (q *queued) Choke(key int) bool {
	allowed := q.Peek(key, 0).Remaining > 0
	if allowed {
		q.takes <- key
	}
	return allowed
}

func (q *queued) Close() error {
	close(q.takes)
	<-q.charged
	return q.Engine.Close()
}

func kill(s *fault.Switch, seed uint64, stop chan struct{}) {
	dice := rand.New(rand.NewPCG(seed, 1<<32))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(100+dice.IntN(900)) * time.Microsecond):
			s.Arm(fault.Panic + fault.Kind(dice.IntN(2)))
		}
	}
}

// clock moves in steps by tick, and by a few at most during a call.
type clock struct {
	now   atomic.Int64
	step  int64
	began []began
}

// began holds the clock's reading at the start of a client's call, or 0 between calls.
type began struct {
	time atomic.Int64
	_    [56]byte
}

// read is the engine's clock. Its caller may be held up right after.
func (c *clock) read() policy.Instant {
	now := policy.Instant(c.now.Load())
	if rand.IntN(yields) == 0 {
		runtime.Gosched()
	}
	return now
}

// begin announces a client's call and returns the clock's reading. It retries if the clock moved,
// because tick may not have seen the call.
func (c *clock) begin(client int) policy.Instant {
	for {
		now := c.now.Load()
		c.began[client].time.Store(now)
		if c.now.Load() == now {
			return policy.Instant(now)
		}
	}
}

// end announces the end of the call and returns the clock's reading.
func (c *clock) end(client int) policy.Instant {
	now := c.now.Load()
	c.began[client].time.Store(0)
	return policy.Instant(now)
}

// tick moves the clock. It does nothing and reports false if that is too far for a call under way.
func (c *clock) tick() bool {
	now := c.now.Load()
	for i := range c.began {
		if at := c.began[i].time.Load(); at != 0 && now-at >= lag*c.step {
			return false
		}
	}
	c.now.CompareAndSwap(now, now+c.step)
	return true
}

type client struct {
	id     int
	l      limiter
	e      *engine.Engine[int]
	s      *Scenario
	clock  *clock
	events *atomic.Int64
	dice   *rand.Rand
	ops    []Op
	held   []reserved
	made   int64
}

type reserved struct {
	key int
	id  int64
	r   engine.Reservation[int]
}

func (c *client) call(n int) {
	for c.dice.IntN(ticks) == 0 && !c.clock.tick() {
		time.Sleep(rest / 10) // otherwise all other calls would share an instant
	}
	visit := n / opsPerVisit
	group := visit/(groups*visits)*groups + visit%groups
	key := group*keysPerGroup + c.dice.IntN(keysPerGroup)
	units := 1 + int64(c.dice.ExpFloat64()/2)

	if c.s.InUse() {
		c.use(key, units)
		return
	}
	all := 100
	if c.s.Queued {
		all = 66 // other verbs of the engine do not know of takes in flight
	}
	switch what := c.dice.IntN(all); {
	case what < 30:
		c.note(Op{Key: key, Verb: Choke, N: 1}, func(operation *Op) { operation.Allowed = c.l.Choke(key) })
	case what < 60:
		c.note(Op{Key: key, Verb: Take, N: units}, func(operation *Op) { operation.Decision = c.l.Take(key, units) })
	case what < 66:
		c.note(Op{Key: key, Verb: Peek}, func(operation *Op) { operation.Decision = c.l.Take(key, 0) })
	case what < 72:
		c.refund(key, units)
	case what < 74:
		c.note(Op{Key: key, Verb: Reset}, func(operation *Op) { operation.Allowed = c.e.Reset(key) })
	case what < 82:
		c.takeAll(key, units)
	case what < 92 && len(c.held) < maxHeld:
		c.reserve(key, units)
	case len(c.held) > 0:
		c.cancel()
	default:
		c.note(Op{Key: key, Verb: Choke, N: 1}, func(operation *Op) { operation.Allowed = c.l.Choke(key) })
	}
}

// use makes a call on units in use.
func (c *client) use(key int, units int64) {
	switch what := c.dice.IntN(100); {
	case what < 12:
		c.note(Op{Key: key, Verb: Choke, N: 1}, func(operation *Op) { operation.Allowed = c.l.Choke(key) })
	case what < 20:
		c.note(Op{Key: key, Verb: Take, N: units}, func(operation *Op) { operation.Decision = c.l.Take(key, units) })
	case what < 26:
		c.note(Op{Key: key, Verb: Peek}, func(operation *Op) { operation.Decision = c.l.Take(key, 0) })
	case what < 29:
		c.note(Op{Key: key, Verb: Reset}, func(operation *Op) { operation.Allowed = c.e.Reset(key) })
	case what < 40 && len(c.held) > 0:
		reserved := &c.held[c.dice.IntN(len(c.held))]
		c.note(Op{Key: reserved.key, Verb: Extend, ID: reserved.id}, func(operation *Op) { operation.Allowed = reserved.r.Extend() })
	case what < 70 && len(c.held) > 0 || len(c.held) == maxHeld:
		c.cancel()
	default:
		c.reserve(key, units)
	}
}

func (c *client) note(op Op, call func(*Op)) *Op {
	op.Client = c.id
	op.From = c.clock.begin(c.id)
	op.Call = c.events.Add(1)
	call(&op)
	op.Return = c.events.Add(1)
	op.To = c.clock.end(c.id)
	c.ops = append(c.ops, op)
	return &c.ops[len(c.ops)-1]
}

func (c *client) refund(key int, units int64) {
	// A charge that a full table cannot record is refused, and not counted.
	if c.s.Liberty() == Forgives && c.dice.IntN(4) == 0 {
		units = -units
	}
	c.note(Op{Key: key, Verb: Refund, N: units}, func(operation *Op) { operation.Decision = c.e.Refund(key, units) })
}

func (c *client) newID() int64 {
	c.made++
	return c.made<<16 | int64(c.id+1)
}

func (c *client) reserve(key int, units int64) {
	patience := time.Duration(c.dice.IntN(3)) * 200 * time.Millisecond
	var reservation engine.Reservation[int]
	op := c.note(Op{Key: key, Verb: Reserve, N: units, Patience: patience}, func(operation *Op) {
		reservation = c.e.Reserve(key, units, patience)
		operation.Decision = reservation.Decision
	})
	if reservation.Allowed && c.dice.IntN(8) > 0 {
		op.ID = c.newID()
		c.held = append(c.held, reserved{key, op.ID, reservation})
	}
}

func (c *client) cancel() {
	reserved := c.held[0]
	c.held = c.held[1:]
	end := reserved.r.Cancel
	if c.s.InUse() {
		end = reserved.r.Release
	}
	c.note(Op{Key: reserved.key, Verb: Cancel, ID: reserved.id}, func(*Op) { end() })
}

func (c *client) takeAll(key int, units int64) {
	other := key/keysPerGroup*keysPerGroup + (key+1+c.dice.IntN(keysPerGroup-1))%keysPerGroup
	var out engine.Outcome
	first := *c.note(Op{Key: key, Verb: All, N: units}, func(*Op) {
		out = engine.TakeAll(c.e.Claim(key, units), c.e.Claim(other, units))
	})
	c.ops = c.ops[:len(c.ops)-1]
	for i, key := range []int{key, other} {
		op := first
		op.Key, op.Decision = key, out.Decisions[i]
		if out.Allowed {
			c.ops = append(c.ops, op)
			continue
		}
		op.Verb = Glance
		c.ops = append(c.ops, op)
		op.Decision, op.ID = policy.Decision{}, c.newID()
		op.Verb = Grab
		c.ops = append(c.ops, op)
		op.Verb = Release
		c.ops = append(c.ops, op)
	}
}
