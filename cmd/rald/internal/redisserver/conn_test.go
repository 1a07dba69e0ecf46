package redisserver

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPipelineIsAnsweredInOrder(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		const n = 10_000
		c.flood("CL.THROTTLE k 10000 1 3600\r\n", n)
		for i := range n {
			require.Equal(t, int64(n-i), c.reply().([]any)[2])
		}
	})
}

// The deadline does not restart with each byte.
func TestHalfCommandIsNotWaitedForForEver(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		for _, part := range []string{"\r", "\n"} { // an empty line in two parts is no command
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

// serveTLS serves a listener with TLS until the test shuts the server down.
func serveTLS(t *testing.T, s *Server) (l *pipes, served chan error) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates}
	l, served = listenPipes(), make(chan error, 1)
	go func() { served <- s.Serve(tls.NewListener(l, config)) }()
	return l, served
}

// After a whole handshake a client may idle. A shutdown ends half handshakes at once.
func TestHalfHandshakeIsNotWaitedForForEver(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		l, served := serveTLS(t, c.server)
		whole, silent, slow := l.dial(), l.dial(), l.dial()
		defer silent.Close()
		client := tls.Client(whole, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, client.Handshake())
		_, err := io.WriteString(slow, "\x16\x03\x01\x01\x00") // a record of 256 bytes
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
		waiting.flood("*4\r\n$8\r\nRAL.WAIT", 1) // half of another
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
func TestStats(t *testing.T) {
	inBubble(t, Config{Clients: 3}, func(t *testing.T, c *client) {
		c.do("CL.THROTTLE k 4 1 10")
		c.do("cl.throttle k 4 1 10 9") // a refusal is no error
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
