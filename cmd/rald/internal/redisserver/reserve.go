package redisserver

import (
	"crypto/rand"
	"math"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/reservation"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

// reserve is RAL.RESERVE limit key n ttl spend|release [id]: it takes n units, which a commit corrects. The
// units are spent or released at the deadline, ttl milliseconds later.
func (c *conn) reserve(args [][]byte) {
	use, n := c.find(args[1], args[2]), c.units("n", args[3], 1)
	ttl := c.timeToLiveOf(args[4])
	action, ok := reservation.Actions[string(args[5])]
	if !c.failed() && !ok {
		c.out.Error("ERR the action at the deadline is " + quoted(args[5]) + ": spend or release is accepted")
	}
	if _, inFlight := maxTimeInFlight(use.Limit); !c.failed() && inFlight && action == reservation.Spend {
		c.out.Error("ERR the action at the deadline is " + quoted(args[5]) + ": release is accepted under " + quoted(args[1]) +
			", as units in flight are in use until they are released, and are never spent")
	}
	if c.failed() {
		return
	}
	if n > c.server.config.Reserve.maxUnits(use.Limit) {
		decision, err := use.Family.TakeWith(c.background(), use.Limit, use.Key, 0)
		decision.Allowed, decision.RetryAfter = false, policy.Never
		c.reserved("", 0, decision, err)
		return
	}
	name := []byte(rand.Text())
	if len(args) == 7 && len(args[6]) > 0 {
		name = args[6]
	}
	id := idOf(use, name)
	ttl, decision, err := c.server.holdings().reserve(c.background(), use, id, n, ttl, action)
	if !decision.Allowed {
		id.Name = ""
	}
	c.reserved(id.Name, ttl, decision, err)
}

// reserved writes the reply to RAL.RESERVE: the ID, empty if the call was refused, the time to the
// deadline, and the decision.
func (c *conn) reserved(name string, ttl time.Duration, decision policy.Decision, err error) {
	if c.fail(err) {
		return
	}
	c.out.Map(8)
	c.out.Bulk("id")
	if name == "" {
		c.out.Null()
	} else {
		c.out.Bulk(name)
	}
	c.out.Pair("ttl", ms(ttl))
	c.decisionPairs(&decision)
}

// commit is RAL.COMMIT limit key id actual: it ends the reservation with the actual units.
func (c *conn) commit(args [][]byte) {
	use, actual := c.find(args[1], args[2]), c.units("actual", args[4], 0)
	if c.failed() {
		return
	}
	actual = min(actual, decide.MostCharge(use.Limit))
	if _, inFlight := maxTimeInFlight(use.Limit); inFlight {
		// The call is over, and has no cost.
		actual = 0
	}
	c.changed(c.server.holdings().commit(c.background(), use, idOf(use, args[3]), actual))
}

// extend is RAL.EXTEND limit key id ttl: it moves the deadline to ttl milliseconds from now.
func (c *conn) extend(args [][]byte) {
	use, ttl := c.find(args[1], args[2]), c.timeToLiveOf(args[4])
	if !c.failed() {
		c.changed(c.server.holdings().changeKnown(c.background(), idOf(use, args[3]), func(book *book, entry *record, now time.Duration) int64 {
			return book.Extend(entry, now, ttl)
		}))
	}
}

// release is RAL.RELEASE limit key id: it gives the units back.
func (c *conn) release(args [][]byte) {
	if use := c.find(args[1], args[2]); !c.failed() {
		c.changed(c.server.holdings().changeKnown(c.background(), idOf(use, args[3]), (*book).Release))
	}
}

// changed writes the reply to a command that names a reservation: its state, the units that count for it
// now, and the time to its deadline.
func (c *conn) changed(standing standing, err error) {
	if c.fail(err) {
		return
	}
	c.out.Map(3)
	c.out.Bulk("state")
	c.out.Bulk(standing.state.String())
	c.out.Pair("units", standing.units)
	c.out.Pair("ttl", ms(standing.left))
}

// idOf returns the ID of a client's name for a reservation. The key of a configured limit names the limit, whatever its present
// figures.
func idOf(use configured.Use, name []byte) reservation.ID {
	id := reservation.ID{Key: use.Key, Name: string(bounded(name))}
	if use.Of == nil {
		id.Limit = use.Limit.String()
	}
	return id
}

// timeToLiveOf parses milliseconds, 1 or more. A time beyond Reserve.Longest is cut to it.
func (c *conn) timeToLiveOf(arg []byte) time.Duration {
	ttl := c.milliseconds("ttl", arg, 1, math.MaxInt64, "1 or more milliseconds are")
	return min(ttl, c.server.config.Reserve.Longest)
}

// maxTimeInFlight returns how long units of a limit may be in use, if they are until they are released. A commit
// gives them back and never charges them.
func maxTimeInFlight(limit policy.Policy) (longest time.Duration, ok bool) {
	if _, ok = limit.(policy.Occupier); !ok {
		return math.MaxInt64, false
	}
	if timed, has := limit.(policy.Windowed); has {
		return timed.Window(), true
	}
	return math.MaxInt64, true
}
