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

// look writes the present decision about a key.
func (c *conn) look(use configured.Use) {
	c.decided(use.Family.TakeWith(c.background(), use.Limit, use.Key, 0))
}

// explain is RAL.EXPLAIN limit key. It says why a call for one unit is admitted or refused, and takes nothing.
func (c *conn) explain(args [][]byte) {
	use := c.find(args[1], args[2])
	if c.failed() {
		return
	}
	explanation, err := use.Family.ExplainWith(c.background(), use.Limit, use.Key)
	if c.fail(err) {
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

func claim(u configured.Use) families.Claim {
	return families.Claim{Family: u.Family, Limit: u.Limit, Key: u.Key}
}

// find, units and milliseconds read an argument each, unless an earlier one of the command is at fault. Of
// several faulty arguments the first is answered: see failed.
func (c *conn) find(limit, key []byte) (use configured.Use) {
	if !c.failed() {
		var err error
		use, err = c.server.catalog.find(&c.call, limit, key)
		c.fail(err)
	}
	return use
}

func (c *conn) units(what string, arg []byte, lowest int64) int64 {
	n, ok := resp.Int(arg)
	switch {
	case c.failed():
	case !ok:
		c.out.Error("ERR " + what + " is " + quoted(arg) + ": an integer of 64 bits is accepted")
	case n < lowest:
		c.out.Error("ERR " + what + " is " + quoted(arg) + ": " + itoa(lowest) + " or more is accepted")
	}
	return n
}

// milliseconds reads a number of milliseconds between two bounds, which want tells.
func (c *conn) milliseconds(what string, arg []byte, lowest, highest int64, want string) time.Duration {
	n, ok := resp.Int(arg)
	if !c.failed() && (!ok || n < lowest || n > highest) {
		c.out.Error("ERR " + what + " is " + quoted(arg) + ": " + want + " accepted")
	}
	return time.Duration(min(n, policy.Never.Milliseconds())) * time.Millisecond
}

// background is the context of calls that do not wait. Shutdown lets them end.
func (*conn) background() context.Context { return context.Background() }

// fail reports whether there is an error, and writes it.
func (c *conn) fail(err error) bool {
	if err != nil {
		c.out.Error("ERR " + c.told(err))
	}
	return err != nil
}

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
	if !c.fail(err) {
		c.decision(decision)
	}
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
