package cell

import (
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// TakeQueued is Take by the protocol of the design that Ral comes from: the caller
// decides on what it reads and sends the take to the writer, and the writer alone
// advances the word. It admits more than the limit by what is in flight, and the writer
// counts by how much. Without a writer it is Take.
//
// No other verb knows of this protocol, and it knows of no other verb: use it alone.
func (c *Cell[K]) TakeQueued(key K, n int64) (d policy.Decision) {
	if !c.writing() || c.closed.Load() {
		c.Take(key, n, &d)
		return d
	}
	o := c.takeQueued(key, &request{n: n, limit: c.Chosen(key)})
	if n != 0 {
		c.Count(key, &o.Decision, o.Basis)
	}
	return o.Decision
}

func (c *Cell[K]) takeQueued(key K, q *request) outcome {
	hash, hashed := c.hash(key)
	op := c.newOpening(hash, hashed, key, c.now())
	var e *table.Entry[K]
	if hashed {
		e = c.view.Load(hash, key)
	}
	for {
		if e == nil {
			var o outcome
			if e, o = op.next(q); e == nil {
				return o
			}
		}
		if o, alive := c.send(e, op.now, q); alive {
			return o
		}
		e = nil
	}
}

// send decides by the entry's word, and sends what is allowed to the writer. alive is
// false if the entry is dead.
func (c *Cell[K]) send(e *table.Entry[K], now policy.Instant, q *request) (o outcome, alive bool) {
	for {
		word, terms := c.view.Read(e)
		state, alive := terms.State(word)
		if !alive {
			return outcome{}, false
		}
		if state == 0 && q.n != 0 {
			now = max(now, c.view.Horizon())
		}
		var d policy.Decision
		next := q.decide(terms, state, now, &d)
		switch {
		case q.n == 0 || !d.Allowed:
			return outcome{Decision: d}, true
		case next > policy.MaxWord:
			return outcome{Decision: policy.Decision{Limit: d.Limit, RetryAfter: policy.Never}}, true
		}
		// Only a landed entry may be charged later on.
		plain := state | terms.EpochBit
		landed := word == plain || e.Advance(word, plain)
		if !landed {
			continue
		}
		if c.queue.Send(table.TakeCommand(e, now, q.n, q.patience), c.openTimeout) != nil {
			return c.unavailableAnswer(q, d, false), true
		}
		return outcome{Decision: d}, true
	}
}
