package redisserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/policy"
)

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

// failed reports whether the present command has been answered by an error.
func (c *conn) failed() bool { return c.out.Errors() > c.errors }

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

// look writes the present decision about a key.
func (c *conn) look(use configured.Use) {
	c.decided(use.Family.TakeWith(c.background(), use.Limit, use.Key, 0))
}

func (c *conn) decided(decision policy.Decision, err error) {
	if !c.fail(err) {
		c.decision(decision)
	}
}

// decision writes a decision. Times are milliseconds, rounded up, and -1 is never.
func (c *conn) decision(decision policy.Decision) {
	c.out.Map(6)
	c.decisionPairs(&decision)
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

func ms(duration time.Duration) int64 {
	if duration == policy.Never {
		return -1
	}
	return whole.Up(duration, time.Millisecond)
}

func quoted(arg []byte) string { return fmt.Sprintf("%.64q", arg) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// background is the context of calls that do not wait. Shutdown lets them end.
func (*conn) background() context.Context { return context.Background() }
