package redisserver

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
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
	use, ok := c.find(args[1], args[0])
	n := int64(1)
	if ok && len(args) == 3 {
		n, ok = c.units("n", args[2], 0)
	}
	if ok {
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
		use, ok := c.find(args[1], args[0])
		if !ok {
			return
		}
		n, ok := c.units("n", args[2], 0)
		if !ok {
			return
		}
		claims = append(claims, limits.NewClaim(use.Limiter(), limits.Call[string]{Key: use.Key, N: n, Limit: use.Limit, Brief: true}))
	}
	out, err := limits.AskAll(c.background(), 0, claims...)
	if err != nil {
		c.fail(err)
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
	if u, ok := c.find(args[2], args[1]); ok {
		c.decided(u.Family.TakeWith(c.background(), u.Limit, u.Key, 0))
	}
}

// explain is RAL.EXPLAIN limit key. It says why a call for one unit is admitted or refused, and takes nothing.
func (c *conn) explain(args [][]byte) {
	use, ok := c.find(args[1], args[2])
	if !ok {
		return
	}
	explanation, err := use.Family.ExplainWith(c.background(), use.Limit, use.Key)
	if err != nil {
		c.fail(err)
		return
	}
	if explanation.Name = ""; use.Of != nil {
		explanation.Name = string(args[1])
	}
	c.out.Map(12)
	c.out.Bulk("text")
	c.out.Bulk(explanation.String())
	c.decisionPairs(&explanation.Decision)
	c.out.Pair("used", explanation.Used)
	c.out.Pair("of", explanation.Of)
	c.out.Pair("blocked", ms(explanation.Blocked))
	c.out.Pair("waiting", int64(explanation.Waiting))
	c.out.Bulk("source")
	c.out.Bulk(explanation.Source().String())
}

// refund is RAL.REFUND key limit n: it gives n units back, or charges -n more.
func (c *conn) refund(args [][]byte) {
	use, ok := c.find(args[2], args[1])
	if !ok {
		return
	}
	if n, ok := c.units("n", args[3], -1<<63); ok {
		c.decided(use.Refund(c.background(), n))
	}
}

// maxWait bounds the patience of RAL.WAIT.
const maxWait = time.Minute

// wait is RAL.WAIT key limit n milliseconds: it waits up to so long for its turn.
func (c *conn) wait(args [][]byte) {
	use, ok := c.find(args[2], args[1])
	if !ok {
		return
	}
	n, ok := c.units("n", args[3], 0)
	if !ok {
		return
	}
	patience, ok := resp.Int(args[4])
	if !ok || patience < 0 || patience > maxWait.Milliseconds() {
		c.out.Error("ERR milliseconds is " + quoted(args[4]) + ": 0 to " + itoa(maxWait.Milliseconds()) + " is accepted")
		return
	}
	call := limits.Call[string]{Key: use.Key, N: n, Limit: use.Limit, Patience: time.Duration(patience) * time.Millisecond}
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
	use, ok := c.find(args[2], args[1])
	if !ok {
		return
	}
	had, err := use.Reset(c.background())
	if err != nil {
		c.fail(err)
		return
	}
	c.out.Bool(had)
}

// change is RAL.CHANGE key from to: the units used under a limit count under another.
func (c *conn) change(args [][]byte) {
	from, ok := c.find(args[2], args[1])
	if !ok {
		return
	}
	to, ok := c.find(args[3], args[1])
	if !ok {
		return
	}
	if err := families.Change(c.background(), claim(from), claim(to)); err != nil {
		c.fail(err)
		return
	}
	c.decided(to.Family.TakeWith(c.background(), to.Limit, to.Key, 0))
}

func claim(u configured.Use) families.Claim {
	return families.Claim{Family: u.Family, Limit: u.Limit, Key: u.Key}
}

func (c *conn) find(limit, key []byte) (configured.Use, bool) {
	use, err := c.server.catalog.find(&c.call, limit, key)
	if err != nil {
		c.fail(err)
	}
	return use, err == nil
}

func (c *conn) units(what string, arg []byte, lowest int64) (int64, bool) {
	n, ok := resp.Int(arg)
	switch {
	case !ok:
		c.wantInt(what, arg)
	case n < lowest:
		c.out.Error("ERR " + what + " is " + quoted(arg) + ": " + itoa(lowest) + " or more is accepted")
		ok = false
	}
	return n, ok
}

// background is the context of calls that do not wait. Shutdown lets them end.
func (*conn) background() context.Context { return context.Background() }

func (c *conn) fail(err error) { c.out.Error("ERR " + c.told(err)) }

// told returns the text of a limiter's error, without rald's engines and addresses.
func (c *conn) told(err error) string {
	switch {
	case errors.Is(err, errSentMore):
		return errSentMore.Error()
	case errors.Is(err, engine.ErrClosed), errors.Is(err, engine.ErrCancelled) && c.server.closing.Err() != nil:
		return "this server is closing: ask it again later, or another"
	case errors.Is(err, engine.ErrCancelled):
		return "the wait ended before its turn, and took nothing"
	case errors.Is(err, engine.ErrCrowded):
		return "too many calls wait under this limit: ask it again later"
	case errors.Is(err, engine.ErrUnavailable):
		return "this server records no new key under this limit any more: ask another"
	case errors.Is(err, fleet.ErrOutage):
		return "Redis could not be asked: ask this server again later (INFO has the cause)"
	}
	return err.Error()
}

func (c *conn) decided(decision policy.Decision, err error) {
	if err != nil {
		c.fail(err)
		return
	}
	c.decision(decision)
}

// decision writes a decision. Times are milliseconds, rounded up, and -1 is never.
func (c *conn) decision(d policy.Decision) {
	c.out.Map(6)
	c.decisionPairs(&d)
}

// decisionPairs writes the pairs of a decision's map.
func (c *conn) decisionPairs(decision *policy.Decision) {
	c.out.Bulk("allowed")
	c.out.Bool(decision.Allowed)
	c.out.Pair("limit", decision.Limit)
	c.out.Pair("remaining", decision.Remaining)
	c.out.Pair("wait", ms(decision.Wait))
	c.out.Pair("retry_after", ms(decision.RetryAfter))
	c.out.Pair("reset_after", whole.UntilReset(decision.ResetAfter, time.Millisecond))
}

func ms(d time.Duration) int64 {
	if d == policy.Never {
		return -1
	}
	return whole.Up(d, time.Millisecond)
}
