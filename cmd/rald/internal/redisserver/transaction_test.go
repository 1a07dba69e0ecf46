package redisserver

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Drivers send all commands before reading an answer. The connection goes on.
//
// Promise: Commands in `MULTI` take nothing, and `EXEC` says so.
func TestTransactionsAreRefused(t *testing.T) {
	c := connect(t, Config{})
	const refused, aborted = replyError("ERR " + noTransactions), replyError("EXECABORT Transaction discarded because of previous errors: " + noTransactions)
	all := func(commands ...string) (replies []any) {
		go func() { _, _ = io.WriteString(c.conn, strings.Join(commands, "\r\n")+"\r\n") }()
		for range commands {
			replies = append(replies, c.reply())
		}
		return replies
	}
	full := c.do("RAL.PEEK ann api")

	assert.Equal(t, []any{"OK", refused, aborted}, all("MULTI", "CL.THROTTLE ann 4 1 60", "EXEC"), "redis-py's pipeline")
	assert.Equal(t, []any{"OK", refused, refused, "OK", "PONG"}, all("multi", "RAL.TAKE ann api 5", "RAL.WAIT ann api 1 60000", "discard", "PING"))
	assert.Equal(t, []any{"OK", refused, refused, aborted}, all("MULTI", "MULTI", "RAL.TAKE ann api", "EXEC"), "they cannot be nested")
	assert.Equal(t, []any{"OK", refused, refused, aborted}, all("MULTI", "SET a b", "RAL.TAKE ann", "EXEC"), "commands that are wrong otherwise, too")
	for _, command := range []string{"DEL ann", "SCAN 0", "HELLO 3", "AUTH x", "CLIENT INFO", "PING", "SELECT 0", "RAL.RESET ann api", "INFO", "nonsense"} {
		assert.Equal(t, []any{"OK", refused, aborted}, all("MULTI", command, "EXEC"))
	}
	assert.Equal(t, []any{"OK", []any{}}, all("MULTI", "EXEC"), "there is nothing to refuse")
	assert.Equal(t, []any{"OK", refused, "RESET", replyError("ERR EXEC without MULTI")}, all("MULTI", "RAL.TAKE ann api", "RESET", "EXEC"))
	assert.Equal(t, []any{replyError("ERR EXEC without MULTI"), replyError("ERR DISCARD without MULTI")}, all("EXEC", "DISCARD"))

	assert.Equal(t, full, c.do("RAL.PEEK ann api"), "no unit was taken")
	assert.Equal(t, []any{int64(0), int64(5), int64(4), int64(-1), int64(60)}, c.do("CL.THROTTLE ann 4 1 60"), "nor here")
	assert.Equal(t, []any{"OK", refused, "OK", io.EOF}, append(all("MULTI", "RAL.TAKE ann api", "QUIT"), c.reply()))
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
