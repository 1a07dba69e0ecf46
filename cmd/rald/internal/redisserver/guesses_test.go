package redisserver

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: Three wrong passwords end a connection.
func TestWrongPasswordsAreBounded(t *testing.T) {
	inBubble(t, Config{Password: "secret"}, func(t *testing.T, known *client) {
		assert.Equal(t, "OK", known.do("AUTH secret"))
		const wrong = replyError("WRONGPASS invalid username-password pair")
		for range 20 {
			c := known.another()
			assert.Equal(t, wrong, c.do("AUTH other"))
			assert.Equal(t, wrong, c.do("HELLO 3 AUTH default other"))
			assert.Equal(t, wrong, c.do("AUTH other"))
			assert.Equal(t, io.EOF, c.reply(), "the connection goes on after three wrong passwords")
		}
		const many = replyError("ERR too many wrong passwords came from this address: try again later")
		for _, command := range []string{"AUTH other", "AUTH secret", "HELLO 3 AUTH default secret"} {
			c := known.another()
			assert.Equal(t, many, c.do(command), "the address has no bound")
			assert.Equal(t, io.EOF, c.reply())
		}
		assert.Equal(t, "PONG", known.do("PING"), "a client that has given the password")
		time.Sleep(time.Second)
		for range 100 {
			assert.Equal(t, "OK", known.another().do("AUTH secret"), "a right password counts as a wrong one")
		}
	})
}

func TestWrongPasswordsAreCountedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g, err := newGuesses(slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		defer g.close()
		addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
		for range 60 {
			assert.True(t, g.mayTry(addr("2001:db8::1")))
			g.count(addr("2001:db8::2"))
		}
		assert.False(t, g.mayTry(addr("2001:db8::3")), "an address of the same 64 bits")
		assert.True(t, g.mayTry(addr("2001:db8:0:1::1")))
		assert.True(t, g.mayTry(addr("192.0.2.1")))
		assert.True(t, g.mayTry(&net.UnixAddr{}))

		assert.Equal(t, 10, strings.Count(log.String(), "\n"))
		time.Sleep(10 * time.Second)
		g.count(addr("192.0.2.1"))
		assert.Equal(t, 11, strings.Count(log.String(), "\n"))
		assert.Contains(t, log.String(), "not_logged_before=50")
	})
}
