package redisserver

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
)

// all sends all commands before it reads an answer, as drivers do.
func (c *client) all(commands ...string) (replies []any) {
	go func() { _, _ = io.WriteString(c.conn, strings.Join(commands, "\r\n")+"\r\n") }()
	for range commands {
		replies = append(replies, c.reply())
	}
	return replies
}

// Promise: `EXEC` executes the commands since `MULTI` in order, or none if one cannot be executed.
func TestTransactions(t *testing.T) {
	c := connect(t, Config{})
	const aborted = replyError("EXECABORT Transaction discarded because of previous errors.")
	throttled := func(remaining, reset int64) []any { return []any{int64(0), int64(5), remaining, int64(-1), reset} }

	assert.Equal(t, []any{"OK", "QUEUED", "QUEUED", []any{throttled(4, 15), throttled(3, 30)}},
		c.all("MULTI", "CL.THROTTLE ann 4 4 60", "CL.THROTTLE ann 4 4 60", "EXEC"), "redis-py's pipeline")
	for _, refused := range []string{"RAL.TAKE ann", "SET a b", "RAL.WAIT ann api 1 60000", "HELLO 3", "AUTH x"} {
		replies := c.all("multi", "CL.THROTTLE ann 4 4 60", refused, "CL.THROTTLE ann 4 4 60", "exec")
		assert.Equal(t, []any{"OK", "QUEUED", "QUEUED", aborted}, slices.Delete(slices.Clone(replies), 2, 3), refused)
		assert.Contains(t, replies[2], "ERR ", refused)
	}
	assert.Equal(t, throttled(2, 45), c.do("CL.THROTTLE ann 4 4 60"), "none was executed")
	replies := c.all("MULTI", "RAL.TAKE ann nonsense", "PING", "EXEC")
	executed := replies[3].([]any)
	assert.Contains(t, executed[0], "ERR ", "a command that fails ends no transaction")
	assert.Equal(t, "PONG", executed[1])

	nested := replyError("ERR MULTI calls can not be nested")
	assert.Equal(t, []any{"OK", nested, "QUEUED", []any{"PONG"}}, c.all("MULTI", "MULTI", "PING", "EXEC"))
	assert.Equal(t, []any{"OK", []any{}}, c.all("MULTI", "EXEC"))
	without := replyError("ERR EXEC without MULTI")
	assert.Equal(t, []any{"OK", "QUEUED", "OK", without}, c.all("MULTI", "RAL.TAKE ann api", "DISCARD", "EXEC"))
	assert.Equal(t, []any{"OK", "QUEUED", "RESET", without}, c.all("MULTI", "RAL.TAKE ann api", "RESET", "EXEC"))
	assert.Equal(t, replyError("ERR DISCARD without MULTI"), c.do("DISCARD"))
	assert.Contains(t, c.do("WATCH ann"), "ERR rald watches no keys")
	assert.Equal(t, "OK", c.do("UNWATCH"))
	assert.Equal(t, []any{"OK", "QUEUED", "OK", io.EOF}, append(c.all("MULTI", "RAL.TAKE ann api", "QUIT"), c.reply()))
}

// Promise: A transaction after `CLIENT CACHING` executes nothing, so that no client caches its replies.
func TestRepliesAreNotCached(t *testing.T) {
	c := connect(t, Config{})
	replies := c.all("CLIENT CACHING YES", "MULTI", "PTTL ann", "RAL.PEEK ann api", "EXEC")
	assert.Contains(t, replies[0], "ERR no reply may be cached by clients")
	assert.Contains(t, replies[4], "EXECABORT ")
	assert.Equal(t, []any{"OK", "QUEUED", []any{"PONG"}}, c.all("MULTI", "PING", "EXEC"))
	c.do("CLIENT CACHING YES")
	assert.Equal(t, []any{"PONG", "OK", "QUEUED", []any{"PONG"}}, c.all("PING", "MULTI", "PING", "EXEC"), "it is for the next command")
}

func TestTransactionsAreBounded(t *testing.T) {
	s, l := door(t, Config{Command: resp.Limits{Arguments: 8, Argument: 100, Command: 200}})
	c := dial(t, l)
	assert.Equal(t, "OK", c.do("MULTI"))
	for range 8 {
		assert.Equal(t, "QUEUED", c.do("PING"))
	}
	assert.Contains(t, c.do("PING"), "ERR a transaction has at most 8 commands and 200 bytes")
	assert.Contains(t, c.do("EXEC"), "EXECABORT")
	assert.Equal(t, "OK", c.do("MULTI"))
	long := strings.Repeat("x", 90)
	assert.Equal(t, []any{"QUEUED", "QUEUED"}, c.all("ECHO "+long, "ECHO "+long))
	assert.Contains(t, c.do("ECHO "+long), "ERR a transaction has")
	assert.Equal(t, "OK", c.do("DISCARD"))
	assert.Equal(t, []any{"OK", "QUEUED", []any{long}}, c.all("MULTI", "ECHO "+long, "EXEC"), "its arguments are kept")
	for _, count := range s.Stats().Commands {
		if count.Name == "echo" {
			assert.Equal(t, CommandStats{"echo", 1, 1}, count, "a command counts when it is executed")
		}
	}
}

// Empty arguments have no bytes. Without a bound a transaction of 64 KiB took 25 MB.
func TestTransactionsBoundTheirArguments(t *testing.T) {
	_, l := door(t, Config{Command: resp.Limits{Arguments: 16, Argument: 100, Command: 4000}})
	c := dial(t, l)
	assert.Equal(t, "OK", c.do("MULTI"))
	for range 8 {
		assert.Equal(t, "QUEUED", c.do("EXISTS"+strings.Repeat(" k", 15)))
	}
	assert.Contains(t, c.do("PING"), "ERR a transaction has at most 16 commands and 4000 bytes, in 128 arguments")
	assert.Contains(t, c.do("EXEC"), "EXECABORT")
	assert.Equal(t, []any{"OK", "QUEUED", []any{"PONG"}}, c.all("MULTI", "PING", "EXEC"), "the next begins anew")
}

// A transaction belongs to its connection.
func TestTransactionNeedsThePassword(t *testing.T) {
	_, l := door(t, Config{Password: "secret"})
	c := dial(t, l)
	assert.Contains(t, c.do("MULTI"), "NOAUTH")
	assert.Equal(t, "OK", c.do("AUTH secret"))
	assert.Equal(t, replyError("ERR EXEC without MULTI"), c.do("EXEC"))
	assert.Equal(t, "OK", c.do("MULTI"))
	other := dial(t, l)
	assert.Equal(t, "OK", other.do("AUTH secret"))
	assert.Equal(t, "PONG", other.do("PING"))
}
