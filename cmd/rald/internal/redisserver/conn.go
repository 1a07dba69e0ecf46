package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/policy"
)

// conn is a connection of a client.
type conn struct {
	server *Server
	net    net.Conn
	in     *resp.Reader
	out    *resp.Writer
	id     int64
	reads  deadline
	writes deadline

	call configured.Call // the present command, on configured limits

	multi  transaction
	name   string
	known  bool // the client has given the password, or none is needed
	wrong  int  // wrong passwords since it was known
	ending bool // after the replies are sent

	// throttle is the limit of the last CL.THROTTLE. Most clients have one.
	throttle struct {
		args  [3]int64
		limit policy.Policy
	}
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, id: s.ids.Add(1), known: s.config.Password == "", call: s.config.Limits.Begin()}
	limits := s.config.Command
	if !c.known {
		limits = greeting
	}
	c.reads.set, c.writes.set = nc.SetReadDeadline, nc.SetWriteDeadline
	c.in, c.out = resp.NewReader(nc, limits), resp.NewWriter(nc)
	return c
}

// interrupt ends a read that waits for the next command.
func (c *conn) interrupt() { _ = c.net.SetReadDeadline(time.Unix(1, 0)) }

// turn is the number of commands of a pipeline after which other connections are served. Without
// it each of many pipelines runs for 10 ms before another connection does: with 8 of them on two
// busy processors the p99 of another client was 30 ms rather than 18.
const turn = 32

// serve answers commands until the client or the server ends the connection.
func (c *conn) serve() {
	defer func() {
		c.call.End()
		if cause := recover(); cause != nil {
			c.server.config.Log.Error("rald: a command panicked, and its connection ends",
				"cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
	}()
	if c.handshake() == nil && c.answer() == nil {
		c.leave()
	}
}

// handshake does that of TLS, if the connection has it. It would be done by the first read
// otherwise, for which a client may take Config.Idle.
func (c *conn) handshake() error {
	encrypted, ok := c.net.(interface {
		HandshakeContext(ctx context.Context) error
	})
	if !ok {
		return nil
	}
	c.reads.after(c.server.config.Within)
	c.writes.after(c.server.config.Within)
	return encrypted.HandshakeContext(c.server.closing)
}

// answer answers commands. Its error is that of sending replies.
func (c *conn) answer() error {
	begun := false // the next command has come in part
	timed := false // the client must give the password before the deadline of reads
	for done := 1; ; done++ {
		if done%turn == 0 {
			runtime.Gosched()
		}
		args, err := c.in.Next()
		if err == nil {
			begun = false
			c.do(args)
			c.call.End()
			if c.ending {
				return c.flush()
			}
			if err := c.full(); err != nil {
				return err
			}
			continue
		}
		if !errors.Is(err, resp.ErrIncomplete) {
			c.server.garbled.Add(1)
			c.out.Error("ERR " + err.Error())
			return c.flush()
		}
		if err := c.flush(); err != nil {
			return err
		}
		timed = timed && !c.known
		switch {
		case timed: // commands do not prolong it
		case !c.known:
			timed = true
			c.reads.after(c.server.config.Within)
		case !c.in.Partial():
			begun = false
			c.reads.after(c.server.config.Idle)
		case !begun:
			begun = true
			c.reads.after(c.server.config.Within)
		}
		if c.server.closing.Err() != nil {
			return nil // Shutdown may have set its deadline before this one was set
		}
		if c.in.Fill() != nil {
			return nil
		}
	}
}

// A connection that is closed while bytes are unread is reset, and a reset discards replies that
// the client has not read yet. So what a client still sends is discarded first, until it closes,
// sends nothing for leaveQuiet, or leaveWithin has passed.
const (
	leaveQuiet  = 200 * time.Millisecond
	leaveWithin = 2 * time.Second
)

// leave tells the client that no more replies come, and discards what it still sends.
func (c *conn) leave() {
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	var discard [1 << 10]byte
	for until := time.Now().Add(leaveWithin); time.Now().Before(until); {
		_ = c.net.SetReadDeadline(time.Now().Add(leaveQuiet))
		if _, err := c.net.Read(discard[:]); err != nil {
			return
		}
	}
}

// full sends the replies if there are many.
func (c *conn) full() error {
	if !c.out.IsFull() {
		return nil
	}
	return c.flush()
}

// flush sends the replies. A client that does not read them loses its connection.
func (c *conn) flush() error {
	if c.out.Buffered() == 0 {
		return nil
	}
	c.writes.after(c.server.config.Within)
	return c.out.Flush()
}

// deadline is that of reads or of writes. It is set only if it is not near enough to what is
// wanted: for each command it would take a twentieth of the time of one that comes alone.
type deadline struct {
	at  time.Time
	set func(time.Time) error
}

// after sees to it that the deadline is at least d from now, and at most an eighth of d more.
func (l *deadline) after(d time.Duration) {
	now := time.Now()
	if left := l.at.Sub(now); left < d || left > d+d/8 {
		l.at = now.Add(d + d/8)
		_ = l.set(l.at)
	}
}

// errSentMore ends a wait during which the reader's buffer was filled. A client that goes can
// only be noticed by reading.
var errSentMore = errors.New("the client sent more than is kept while it waits, so its connection ends")

// fullGrace is the time for which a call goes on although the reader's buffer is full. A client
// may have sent a long pipeline before a call of it begins, and most calls do not wait.
const fullGrace = time.Second

// waiting calls f with a context that ends when the client goes, when the server ends, or when
// f still waits fullGrace after the reader's buffer was full. In the last case the connection
// ends after the reply, if f has given up. The arguments of the present command are not valid
// after it.
func (c *conn) waiting(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancelCause(c.server.closing)
	defer cancel(nil)
	if c.flush() != nil {
		return
	}
	c.reads.at = time.Time{} // it is set anew after this
	_ = c.net.SetReadDeadline(time.Time{})
	// What a client sends meanwhile is kept in the reader's buffer.
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for c.in.HasRoom() {
			if err := c.in.Fill(); err != nil {
				cancel(err)
				return
			}
		}
		grace := time.NewTimer(fullGrace)
		defer grace.Stop()
		select {
		case <-done:
		case <-grace.C:
			cancel(errSentMore)
		}
	}()
	err := f(ctx)
	close(done)
	c.interrupt()
	<-watched
	c.ending = c.ending || err != nil && errors.Is(context.Cause(ctx), errSentMore)
}
