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

	assert.Equal(t, "OK", c.do("MULTI"))
	assert.Equal(t, "PONG", c.another().do("PING"), "it belongs to its connection")
	assert.Equal(t, "OK", c.do("DISCARD"))

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

// In commands, in bytes, and in arguments: empty arguments have no bytes, and without this bound a
// transaction of 64 KiB took 25 MB.
func TestTransactionsAreBounded(t *testing.T) {
	c := connect(t, Config{Command: resp.Limits{Arguments: 8, Argument: 100, Command: 200}})
	long := "ECHO " + strings.Repeat("x", 90)
	for _, many := range [][]string{slices.Repeat([]string{"PING"}, 9), {long, long, long}, slices.Repeat([]string{"EXISTS k k k k k k k"}, 9)} {
		replies := c.all(slices.Concat([]string{"MULTI"}, many, []string{"EXEC"})...)
		last := len(many)
		for i, reply := range replies[1:last] {
			assert.Equal(t, "QUEUED", reply, "%s: %d", many[0], i)
		}
		assert.Contains(t, replies[last], "ERR a transaction has at most 8 commands and 200 bytes, in 64 arguments", many[0])
		assert.Contains(t, replies[last+1], "EXECABORT")
	}
	assert.Equal(t, []any{"OK", "QUEUED", []any{long[5:]}}, c.all("MULTI", long, "EXEC"), "the next begins anew, and keeps its arguments")
	for _, count := range c.server.Stats().Commands {
		if count.Name == "echo" {
			assert.Equal(t, CommandStats{"echo", 1, 1}, count, "a command counts when it is executed")
		}
	}
}
