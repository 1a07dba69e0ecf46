package redisserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

// The deadline does not restart with each byte.
func TestHalfCommandIsNotWaitedForForEver(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		// An empty line in two parts is no command.
		for _, part := range []string{"\r", "\n"} {
			_, err := io.WriteString(c.conn, part)
			require.NoError(t, err)
			synctest.Wait()
		}
		start := time.Now()
		for {
			if _, err := io.WriteString(c.conn, "a"); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, time.Since(start), 12*time.Second)
		c.clients(0)
	})
}

// Their commands do not prolong the time for the password. RESET restarts it.
func TestClientsWithoutThePasswordAreNotKept(t *testing.T) {
	inBubble(t, Config{Password: "secret"}, func(t *testing.T, known *client) {
		busy, reset := known.another(), known.another()
		assert.Equal(t, "OK", known.do("AUTH secret"))
		assert.Equal(t, "OK", reset.do("AUTH secret"))
		for range 9 {
			time.Sleep(time.Second)
			assert.Equal(t, replyError("NOAUTH Authentication required."), busy.do("PING"))
		}
		assert.Equal(t, "RESET", reset.do("RESET"))
		time.Sleep(time.Second - 1)
		busy.clients(3, "they have less than 10 s")
		time.Sleep(10*time.Second/8 + 2)
		busy.clients(2)
		assert.Equal(t, io.EOF, busy.reply())
		time.Sleep(10 * time.Second)
		busy.clients(1)
		assert.Equal(t, io.EOF, reset.reply())
		time.Sleep(50 * time.Minute)
		assert.Equal(t, "PONG", known.do("PING"))
		known.another()
		time.Sleep(10*time.Second + 10*time.Second/8 + 1)
		known.clients(1, "a silent client is waited for")
	})
}

// After a whole handshake a client may idle. A shutdown ends half handshakes at once.
func TestHalfHandshakeIsNotWaitedForForEver(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		certified := httptest.NewTLSServer(nil)
		certified.Close()
		config := &tls.Config{Certificates: certified.TLS.Certificates}
		l, served := listenPipes(), make(chan error, 1)
		go func() { served <- c.server.Serve(tls.NewListener(l, config)) }()
		whole, silent, slow := l.dial(), l.dial(), l.dial()
		defer silent.Close()
		client := tls.Client(whole, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, client.Handshake())
		// The record has 256 bytes.
		_, err := io.WriteString(slow, "\x16\x03\x01\x01\x00")
		require.NoError(t, err)
		for range 12 {
			_, _ = io.WriteString(slow, "\x00")
			time.Sleep(time.Second)
		}
		c.clients(2, "half handshakes are waited for")
		time.Sleep(50 * time.Minute)
		_, err = io.WriteString(client, "QUIT\r\n")
		require.NoError(t, err)
		got, err := io.ReadAll(client)
		assert.NoError(t, err)
		assert.Equal(t, "+OK\r\n", string(got))

		defer l.dial().Close()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.server.Shutdown(context.Background()))
		require.NoError(t, <-served)
		assert.Zero(t, time.Since(start))
	})
}

// It answers read commands, ends waiting calls, and saves their units.
func TestShutdownDrains(t *testing.T) {
	dir := t.TempDir()
	reopen := func(t *testing.T) *client {
		keep, err := families.New(families.Config{Dir: dir})
		require.NoError(t, err)
		return connect(t, Config{Families: keep})
	}
	synctest.Test(t, func(t *testing.T) {
		c := reopen(t)
		idle, waiting := c.another(), c.another()
		c.do("CL.THROTTLE k 4 1 3600 5")
		c.do("RAL.TAKE k login 3")
		c.do("RAL.TAKE k api 5")
		waiting.write("RAL.WAIT", "k", "api", "5", "60000")
		assert.Equal(t, "PONG", idle.do("PING"))
		// The client sends half of another command.
		waiting.flood("*4\r\n$8\r\nRAL.WAIT", 1)
		synctest.Wait()
		start := time.Now()
		down := make(chan error)
		go func() { down <- c.server.Shutdown(context.Background()) }()
		assert.Equal(t, replyError("ERR this server is closing: ask it again later, or another"), waiting.reply())
		assert.Equal(t, io.EOF, waiting.reply())
		assert.Equal(t, io.EOF, idle.reply())
		require.NoError(t, <-down)
		assert.Zero(t, time.Since(start))
	})
	synctest.Test(t, func(t *testing.T) {
		c := reopen(t)
		assert.Equal(t, ints(1, 5, 0, 3600, 18000), c.do("CL.THROTTLE k 4 1 3600"))
		assert.Equal(t, int64(0), c.do("RAL.PEEK k login").([]any)[5])
	})
}

// small is a listener with connections that block as soon as the client does not read.
type small struct{ net.Listener }

func (l small) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// When the server ends, or ends a connection, every executed command has its whole reply. Unread
// commands do not reset the connection.
func TestUnreadCommandsLoseNoReply(t *testing.T) {
	for name, last := range map[string]string{"shutdown": "", "an error": "*x\r\n"} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, Config{Within: time.Minute})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() { served <- s.Serve(small{l}) }()
			conn, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(32<<10))
			// The replies exceed both buffers. The kernel has the commands before the first reply
			// is read.
			text := strings.Repeat("x", 1000)
			_, err = io.WriteString(conn, strings.Repeat("ECHO "+text+"\r\n", 200)+last+strings.Repeat("PING\r\n", 5000))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return s.Stats().total() >= 10 }, time.Minute, time.Millisecond)
			if last == "" {
				go func() { _ = s.Shutdown(context.Background()) }()
				<-s.closing.Done()
			}
			got, err := io.ReadAll(conn)
			require.NoError(t, err, "the connection was reset")
			if last == "" {
				assert.Less(t, s.Stats().total(), uint64(5200), "all was read, so that nothing is tested")
			}
			require.NoError(t, conn.Close())
			require.NoError(t, s.Shutdown(context.Background()))
			require.NoError(t, <-served)
			echoes := strings.Count(string(got), "$1000\r\n"+text+"\r\n")
			pongs := strings.Count(string(got), "+PONG\r\n")
			assert.EqualValues(t, s.Stats().total(), echoes+pongs, "a command was carried out and not answered")
		})
	}
}

// Clients that do not read, when its context ends.
func TestShutdownCutsOff(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.flood("PING\r\n", 10_000)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, c.server.Shutdown(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestNewRefusesBadConfig(t *testing.T) {
	_, err := New(Config{})
	assert.ErrorContains(t, err, "Families or Limits is nil")
	s, _ := open(t, Config{})
	s.config.Rounding = 3
	_, err = New(s.config)
	assert.ErrorContains(t, err, "Rounding is 3")
}

// The connections are bounded.
func TestStatsCountCommandsAndConnections(t *testing.T) {
	inBubble(t, Config{Clients: 3}, func(t *testing.T, c *client) {
		c.do("CL.THROTTLE k 4 1 10")
		// A refusal is no error.
		c.do("cl.throttle k 4 1 10 9")
		c.do("CL.THROTTLE k 4 1 no")
		c.do("RAL.TAKE k")
		c.do("FLUSHALL")
		c.do("nothing such")
		garbage := c.another()
		garbage.flood("*x\r\n", 1)
		assert.IsType(t, replyError(""), garbage.reply())
		c.clients(1)
		for range 2 {
			c.another()
		}
		assert.Equal(t, replyError("ERR max number of clients reached"), c.another().reply())

		got := c.server.Stats()
		assert.Equal(t, 3, got.Clients)
		assert.EqualValues(t, 4, got.Accepted)
		assert.EqualValues(t, 1, got.Refused)
		assert.EqualValues(t, 1, got.Garbled)
		assert.Len(t, got.Commands, len(commands)+1)
		counts := map[string][2]uint64{}
		for _, c := range got.Commands {
			if c.OK+c.Errors > 0 {
				counts[c.Name] = [2]uint64{c.OK, c.Errors}
			}
		}
		assert.Equal(t, map[string][2]uint64{"cl.throttle": {2, 1}, "ral.take": {0, 1}, "unknown": {0, 2}}, counts)
		assert.EqualValues(t, 6, got.total())
	})
}

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

// Promise: Wrong passwords are bounded by address.
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

// memory returns the bytes of heap and stacks in use after a collection, and the goroutines.
func memory() (bytes float64, goroutines int) {
	runtime.GC()
	// A pool keeps its values over one collection.
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// Each connection needs at most the memory that docs/serving.md tells. Those that do nothing more
// end in time.
//
// Promise: Garbage, half commands, slow readers and idle connections end alone.
// Promise: Garbage, idle connections, half commands, slow readers and long pipelines leave nothing behind; others are answered.
func TestAttacksLeaveNothingBehind(t *testing.T) {
	limits := Config{Idle: time.Minute, Within: 10 * time.Second}
	inBubble(t, limits, func(t *testing.T, other *client) {
		left := int64(1000)
		serves := func(attack string) {
			t.Helper()
			start := time.Now()
			left--
			got := other.do("CL.THROTTLE victim 999 1 3600")
			require.Equal(t, ints(0, 1000, left), got.([]any)[:3], attack)
			assert.Zero(t, time.Since(start), attack)
		}
		for _, attack := range []struct {
			name    string
			clients int
			// most bounds the bytes of each client.
			most float64
			// The server ends the clients after ends, if an error does not.
			ends time.Duration
			text string
		}{
			{"idle connections", 300, 32e3, limits.Idle, "PING\r\n"},
			{"half commands", 100, 256e3, limits.Within, "*1000\r\n$11\r\nCL.THROTTLE\r\n" + strings.Repeat("$4000\r\n"+strings.Repeat("x", 4000)+"\r\n", 15)},
			{"slow readers", 50, 256e3, limits.Within, strings.Repeat("*2\r\n$4\r\nECHO\r\n$4000\r\n"+strings.Repeat("x", 4000)+"\r\n", 50)},
			{"long pipelines", 8, 256e3, limits.Idle, strings.Repeat("CL.THROTTLE pipeline 9 1 1\r\n", 10_000)},
			{"many arguments", 100, 32e3, 0, "*1000000000\r\n"},
			{"a long argument", 100, 32e3, 0, "*2\r\n$3\r\nGET\r\n$9999999999\r\n"},
			{"an array in a command", 100, 32e3, 0, "*1\r\n*1\r\n"},
			{"TLS", 100, 32e3, 0, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n'\n"},
			{"pages of browsers", 100, 32e3, 0, "POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE browser 0 1 1\r\n"},
		} {
			before, goroutines := memory()
			start := time.Now()
			var conns []net.Conn
			for range attack.clients {
				conn := other.pipes.dial()
				conns = append(conns, conn)
				go func() { _, _ = io.WriteString(conn, attack.text) }()
				if attack.name != "slow readers" {
					go read(conn)
				}
			}
			synctest.Wait()
			during, _ := memory()
			t.Logf("%s: %.0f bytes each", attack.name, (during-before)/float64(attack.clients))
			assert.Less(t, (during-before)/float64(attack.clients), attack.most, attack.name)
			serves(attack.name)
			if attack.ends > 0 {
				time.Sleep(attack.ends - 1)
				other.clients(attack.clients+1, attack.name)
				serves(attack.name)
				time.Sleep(attack.ends/8 + 2)
			}
			other.clients(1, attack.name)
			assert.LessOrEqual(t, time.Since(start), attack.ends+attack.ends/8+1, attack.name)
			for _, conn := range conns {
				_ = conn.Close()
			}
			conns = nil
			synctest.Wait()
			after, still := memory()
			assert.Less(t, after-before, 2e6, "bytes after %s", attack.name)
			// The runtime's goroutines that clean up come and go.
			assert.LessOrEqual(t, still, goroutines+2, attack.name)
		}
		assert.Equal(t, int64(0), other.do("EXISTS browser"), "a command after an HTTP request was carried out")
	})
}

func read(conn net.Conn) {
	for some := make([]byte, 100); ; {
		if _, err := conn.Read(some); err != nil {
			return
		}
	}
}
