package redisserver

import (
	"context"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/limits"
)

// take is RAL.TAKE key limit [n], or RAL.TAKE key limit n key limit n ..., from all keys or none. A
// limit is a configured name, or a text such as "sliding 100/m".
func (c *conn) take(args [][]byte) {
	args = args[1:]
	switch {
	case len(args) != 2 && len(args)%3 != 0:
		c.out.Error("ERR RAL.TAKE takes key limit [n], or key limit n for each of several keys")
		return
	case len(args) > 3:
		c.takeAll(args)
		return
	}
	use, n := c.find(args[1], args[0]), int64(1)
	if len(args) == 3 {
		n = c.units("n", args[2], 0)
	}
	if !c.failed() {
		c.decided(use.Take(c.background(), n))
	}
}

// maxClaims bounds the keys of a RAL.TAKE.
const maxClaims = 64

func (c *conn) takeAll(args [][]byte) {
	if len(args) > 3*maxClaims {
		c.out.Error("ERR RAL.TAKE takes from at most 64 keys at once")
		return
	}
	claims := make([]limits.Claim, 0, len(args)/3)
	for ; len(args) > 0; args = args[3:] {
		use, n := c.find(args[1], args[0]), c.units("n", args[2], 0)
		if c.failed() {
			return
		}
		claims = append(claims, limits.NewClaim(use.Limiter(), limits.Call[string]{Key: use.Key, N: n, Limit: use.Limit, Brief: true}))
	}
	out, err := limits.AskAll(c.background(), 0, claims...)
	if c.fail(err) {
		return
	}
	c.out.Map(4)
	c.out.Bulk("allowed")
	c.out.Bool(out.Allowed)
	retry := int64(0)
	if !out.Allowed {
		retry = ms(out.RetryAfter)
	}
	c.out.Pair("retry_after", retry)
	c.out.Pair("binding", int64(out.Binding))
	c.out.Bulk("keys")
	c.out.Array(len(out.Answers))
	for i := range out.Answers {
		c.decision(out.Answers[i].Decision)
	}
}

// peek is RAL.PEEK key limit. It takes nothing.
func (c *conn) peek(args [][]byte) {
	if use := c.find(args[2], args[1]); !c.failed() {
		c.look(use)
	}
}

// explain is RAL.EXPLAIN limit key. It says why a call for one unit is admitted or refused, and takes nothing.
func (c *conn) explain(args [][]byte) {
	use := c.find(args[1], args[2])
	if c.failed() {
		return
	}
	explanation, err := use.Explain(c.background())
	if c.fail(err) {
		return
	}
	if explanation.Name = ""; use.Of != nil {
		explanation.Name = string(args[1])
	}
	c.out.Map(13)
	c.out.Bulk("text")
	c.out.Bulk(explanation.String())
	c.decisionPairs(&explanation.Decision)
	c.out.Pair("used", explanation.Used)
	c.out.Pair("of", explanation.Of)
	c.out.Pair("blocked", ms(explanation.Blocked))
	c.out.Pair("waiting", int64(explanation.Waiting))
	c.out.Bulk("shadow")
	c.out.Bool(explanation.Shadow)
	c.out.Bulk("source")
	c.out.Bulk(explanation.Source().String())
}

// refund is RAL.REFUND key limit n: it gives n units back, or charges -n more.
func (c *conn) refund(args [][]byte) {
	use, n := c.find(args[2], args[1]), c.units("n", args[3], -1<<63)
	if !c.failed() {
		c.decided(use.Refund(c.background(), n))
	}
}

// maxWait bounds the patience of RAL.WAIT, in milliseconds.
const maxWait = 60_000

// wait is RAL.WAIT key limit n milliseconds: it waits up to so long for its turn.
func (c *conn) wait(args [][]byte) {
	use, n := c.find(args[2], args[1]), c.units("n", args[3], 0)
	patience := c.milliseconds("milliseconds", args[4], 0, maxWait, "0 to "+itoa(maxWait)+" is")
	if c.failed() {
		return
	}
	call := limits.Call[string]{Key: use.Key, N: n, Limit: use.Limit, Patience: patience}
	hold := use.Limiter().Hold
	if patience == 0 && !use.Limit.Delays() {
		grant, err := hold(c.background(), call)
		c.decided(grant.Decision, err)
		return
	}
	if use.Of != nil {
		// A limit may change while a call waits.
		c.call.End()
		hold = use.Of.Hold
	}
	c.waiting(func(ctx context.Context) error {
		grant, err := hold(ctx, call)
		c.decided(grant.Decision, err)
		return err
	})
}

// reset is RAL.RESET key limit: it forgets the key's usage.
func (c *conn) reset(args [][]byte) {
	use := c.find(args[2], args[1])
	if c.failed() {
		return
	}
	if had, err := use.Reset(c.background()); !c.fail(err) {
		c.out.Bool(had)
	}
}

// change is RAL.CHANGE key from to: the units used under a limit count under another.
func (c *conn) change(args [][]byte) {
	from, to := c.find(args[2], args[1]), c.find(args[3], args[1])
	if !c.failed() && !c.fail(families.Change(c.background(), claim(from), claim(to))) {
		c.look(to)
	}
}

func claim(use configured.Use) families.Claim {
	return families.Claim{Family: use.Family, Limit: use.Limit, Key: use.Key}
}
