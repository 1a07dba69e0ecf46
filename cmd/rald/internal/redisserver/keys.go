package redisserver

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/internal/core/whole"
)

// del is DEL key ...: it forgets the keys' usage under every limit that is not configured
// (RAL.RESET is for those). Over a fleet it knows the limits that this server was asked about since
// its start.
func (c *conn) del(args [][]byte) {
	deleted := int64(0)
	for _, arg := range args[1:] {
		key, had := stored(arg), false
		for family := range c.server.config.Families.All() {
			here, err := family.Reset(c.background(), key)
			if c.fail(err) {
				return
			}
			had = here || had
		}
		if had {
			deleted++
		}
	}
	c.out.Int(deleted)
}

// drains returns the time until the key owes nothing, 0 if it owes nothing now, under the limits that
// DEL knows. It writes an error.
func (c *conn) drains(key []byte) (after time.Duration) {
	for family := range c.server.config.Families.All() {
		decision, err := family.TakeWith(c.background(), family.Limit(), stored(key), 0)
		if c.fail(err) {
			break
		}
		after = max(after, decision.ResetAfter)
	}
	return after
}

// exists is EXISTS key ...: how many of the keys owe.
func (c *conn) exists(args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		if c.drains(key) > 0 {
			n++
		}
		if c.failed() {
			return
		}
	}
	c.out.Int(n)
}

// ttl is TTL key: the seconds until the key owes nothing, -2 if it owes nothing now.
func (c *conn) ttl(args [][]byte) { c.timeToLive(args[1], time.Second) }

func (c *conn) pttl(args [][]byte) { c.timeToLive(args[1], time.Millisecond) }

func (c *conn) timeToLive(key []byte, unit time.Duration) {
	switch duration := c.drains(key); {
	case c.failed():
	case duration == 0:
		c.out.Int(-2)
	default:
		c.out.Int(whole.UntilReset(duration, unit))
	}
}

// kind is TYPE key.
func (c *conn) kind(args [][]byte) {
	switch duration := c.drains(args[1]); {
	case c.failed():
	case duration == 0:
		c.out.Status("none")
	default:
		c.out.Status("string")
	}
}

// dbsize is DBSIZE: how many keys owe, under configured limits also. It looks at each, since entries
// stay for a time after DEL, and after their keys owe nothing.
func (c *conn) dbsize([][]byte) {
	if !c.hasKeys("DBSIZE") {
		return
	}
	n := int64(0)
	for family := range c.server.config.Families.All() {
		for _, decision := range families.EngineOf(family).All() {
			if decision.ResetAfter > 0 {
				n++
			}
		}
	}
	c.out.Int(n)
}

// scan is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type], over the keys that owe.
func (c *conn) scan(args [][]byte) {
	if !c.hasKeys("SCAN") {
		return
	}
	cursor, ok := resp.Int(args[1])
	if !ok || cursor < 0 {
		c.out.Error("ERR invalid cursor")
		return
	}
	count, match, kind := int64(10), "", "string"
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		switch option := strings.ToLower(string(rest[0])); {
		case len(rest) > 1 && option == "match":
			match = string(rest[1])
			if _, err := path.Match(match, ""); err != nil {
				c.out.Error("ERR the pattern " + quoted(rest[1]) + " is not complete")
			}
		case len(rest) > 1 && option == "count":
			if count, ok = resp.Int(rest[1]); !ok || count < 1 {
				c.out.Error("ERR COUNT is " + quoted(rest[1]) + ": 1 or more is accepted")
			}
		case len(rest) > 1 && option == "type":
			kind = strings.ToLower(string(rest[1]))
		default:
			c.out.Error("ERR syntax error")
		}
		if c.failed() {
			return
		}
	}
	found, next, ok := c.server.scans.next(cursor, min(count, maxScanned), c.server.config.Families)
	if !ok {
		c.out.Error("ERR there is no scan of that cursor any more: begin again with 0")
		return
	}
	if kind != "string" {
		// TYPE tells no other type.
		found = nil
	}
	if match != "" && match != "*" {
		// The scan keeps the keys.
		found = slices.DeleteFunc(slices.Clone(found), func(key string) bool {
			ok, _ := path.Match(unslashed(match), unslashed(key))
			return !ok
		})
	}
	c.out.Array(2)
	c.out.Bulk(itoa(next))
	c.out.Array(len(found))
	for _, key := range found {
		c.out.Bulk(key)
	}
}

// unslashed makes slashes ordinary characters, as in keys.
func unslashed(text string) string { return strings.ReplaceAll(text, "/", "\x01") }

// hasKeys reports whether the keys are in this process, or writes that they are not.
func (c *conn) hasKeys(command string) bool {
	shared := c.server.config.Families.Fleet()
	if shared != nil {
		c.out.Error("ERR " + command + " is not there, as Redis keeps the keys: there, their names begin with ral:" + shared.Name + ":")
	}
	return shared == nil
}
