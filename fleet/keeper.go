package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

const (
	// checkEvery beats Redis is asked whether it may drop keys.
	checkEvery = 5
	// flapping bounds how often the end of an outage is told. A Redis that is nearly full changes
	// between fit and unfit several times a second.
	flapping = 10 * time.Second
	// beatBudget is a beat's longest wait for Redis. No call waits for a beat.
	beatBudget = beat / 4
)

// keeper is a limiter's goroutine for the work that no call waits for: the keeper connects, says
// that the server is there, charges units let pass without Redis, and tells of outages.
type keeper struct {
	*Limiter
	id    string
	beats int
	// checked has the changes up to the last check that Redis answered.
	checked changes
	counts  counts
	// outage is the last outage that was told.
	outage bool
	// ended is when the end of an outage was last told.
	ended time.Time
	// unchecked reports whether the program was told that Redis's settings are not known.
	unchecked bool
	// differs is the difference of limits told last.
	differs string
	// agreedAt is when all limits were last heard to be one, by Redis's clock.
	agreedAt policy.Instant
	// stateLost means that Config.StateFile was last told unsaved.
	stateLost bool
	charger   charger
}

// keep runs until the limiter is closed. It calls ready after each attempt to connect, and later
// on.
func (l *Limiter) keep(ready func()) {
	defer close(l.kept)
	k := &keeper{Limiter: l, id: rand.Text()}
	defer k.tellPosted()
	if l.state != nil {
		k.id = l.state.server
	}
	k.charger = charger{calls: k.answered, sleep: k.sleepFor, servers: func() int {
		return max(int(k.servers.Load()), 1)
	}}
	if k.connect(ready) {
		defer k.leave()
		k.run(ready)
	}
}

func (l *Limiter) newRemote(client rueidis.Client) *remote {
	r := &remote{client: client}
	if fake := l.conn.fake; fake != nil {
		r.store = fake(l.storeOptions())
	} else {
		r.store = store.New(client, l.storeOptions())
	}
	return r
}

func (k *keeper) connect(ready func()) bool {
	for rest := pause; ; rest = min(2*rest, maxPause) {
		client, err := k.conn.open(k.ctx, k.tell)
		if err == nil {
			k.remote.Store(k.newRemote(client))
			if k.slots != nil {
				k.slots.start(k.ctx)
			}
			return true
		}
		if k.ctx.Err() != nil {
			return false
		}
		k.refuse(asOutage(err))
		ready()
		if !k.sleepFor(rest) {
			return false
		}
	}
}

// run does its duties each beat and at some wakes, more often while Redis is not asked or has not
// answered a due check. So the breaker closes without a caller. Only a pulse moves the next pulse
// back: wakes, however many come, never postpone a probe.
func (k *keeper) run(ready func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for rest := pause; ; {
		pulses := true
		select {
		case <-timer.C:
		case <-k.wake:
			pulses = k.changes() != k.checked
		case <-k.ctx.Done():
			return
		}
		if pulses {
			k.pulse()
			if k.slots != nil && !k.slots.ready() {
				k.slots.beat(k.ctx)
			}
			due = time.Now().Add(beat)
		}
		k.probeNodes()
		away, _ := k.openNodes()
		if open, _ := k.guard.Open(); !open && len(away) == 0 && k.trouble.Load() == nil && k.changes() == k.checked {
			rest = pause
		} else {
			if next := time.Now().Add(rest); next.Before(due) {
				due = next
			}
			if pulses {
				rest = min(2*rest, maxPause)
			}
		}
		timer.Reset(time.Until(due))
		k.explain()
		k.tell()
		ready()
		k.settle()
	}
}

// explain has calls and Health tell Redis's reply to a new connection, if connections are lost.
func (k *keeper) explain() {
	if failure := k.guard.Failure(); failure != nil && len(k.conn.redis.InitAddress) > 0 {
		k.guard.Explain(store.WhyRefused(k.ctx, k.conn.redis, failure))
	}
}

func (k *keeper) sleepFor(duration time.Duration) bool { return k.sleep(k.ctx, duration) == nil }

// refuse has calls answered without Redis.
func (k *keeper) refuse(why error) {
	k.trouble.Store(&why)
	k.tell()
}

// changes counts outages and connections, except a Config.Client's: Redis may be another then.
type changes struct {
	dials    int64
	openings uint64
}

func (k *keeper) changes() changes { return changes{k.conn.dials.Load(), k.guard.Openings()} }

// pulse checks whether Redis is fit for limits, and takes heartbeats. Redis's settings are checked
// after each of changes until Redis answers, and every few beats, since settings may change.
func (k *keeper) pulse() {
	troubled := k.trouble.Load() != nil
	budget := max(k.config.Budget, beatBudget)
	if troubled {
		// Only New waits for this budget.
		budget = max(budget, connectBudget)
	}
	var err error
	// Later changes may be of another Redis.
	before := k.changes()
	if k.beats++; troubled || before != k.checked || k.beats%checkEvery == 0 {
		if err = k.check(budget); errors.Is(err, store.ErrUnchecked) {
			if !k.unchecked {
				k.config.OnEvent(Event{Kind: Unchecked, Err: err})
			}
			k.unchecked, err = true, nil
		}
		if err == nil || isUnfit(err) {
			k.checked = before
		}
		if k.clustered() {
			k.learn(budget)
		}
	}
	if err == nil {
		// In a cluster the node that has the roll may be away, and others there.
		if err = k.heartbeat(budget); k.clustered() && !isUnfit(err) {
			err = nil
		}
	}
	switch {
	case k.ctx.Err() != nil:
	case err == nil && troubled:
		k.trouble.Store(nil)
	case err != nil && (troubled || isUnfit(err)):
		err = asOutage(err)
		k.trouble.Store(&err)
	}
}

func (k *keeper) check(budget time.Duration) error {
	remote := k.remote.Load()
	_, err := guard.DoPatiently(k.ctx, k.guard, budget, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, remote.store.Check(ctx, budget/2)
	})
	return err
}

func (k *keeper) clustered() bool { return k.remote.Load().clustered() }

// tellPosted tells of warnings.
func (k *keeper) tellPosted() {
	for _, event := range k.warned.takeEvents() {
		k.config.OnEvent(event)
	}
}

// tell tells of warnings, outages, their ends, and unsaved units. The end of an outage within flapping of the
// last end is told after that, if Redis is well then.
func (k *keeper) tell() {
	k.tellPosted()
	if err := k.Limiter.unsaved(); k.stateLost != (err != nil) {
		k.stateLost = err != nil
		kind := StateSaved
		if k.stateLost {
			kind = StateUnsaved
		}
		k.config.OnEvent(Event{Kind: kind, Err: err})
	}
	why := k.away()
	if why == nil {
		_, why = k.openNodes()
	}
	if k.closed.Load() || k.outage == (why != nil) || why == nil && time.Since(k.ended) < flapping {
		return
	}
	k.outage = why != nil
	if k.outage {
		k.config.OnEvent(Event{Kind: OutageBegan, Err: why})
		return
	}
	k.ended = time.Now()
	k.config.OnEvent(Event{Kind: OutageEnded})
}

// learn asks a cluster for its nodes, and keeps the old on failure.
func (k *keeper) learn(budget time.Duration) {
	ctx, cancel := context.WithTimeout(k.ctx, budget)
	defer cancel()
	if ranges, err := k.remote.Load().store.Slots(ctx); err == nil {
		k.learnNodes(ranges, k.maker)
	}
}

// probeNodes probes each node with an open breaker, so that the breaker closes without a caller.
func (k *keeper) probeNodes() {
	open, _ := k.openNodes()
	remote := k.remote.Load()
	var all sync.WaitGroup
	for _, node := range open {
		all.Go(func() {
			_, _ = guard.DoPatiently(k.ctx, node.guard, max(k.config.Budget, beatBudget), func(ctx context.Context) (struct{}, error) {
				return struct{}{}, remote.store.Probe(ctx, *node.probe.Load())
			})
		})
	}
	all.Wait()
}
