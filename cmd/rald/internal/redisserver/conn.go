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
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/policy"
)

type conn struct {
	server *Server
	net    net.Conn
	in     *resp.Reader
	out    *resp.Writer
	id     int64
	reads  deadline
	writes deadline

	// call is the present command, on configured limits.
	call configured.Call
	// errors is the number of errors written before the present command.
	errors uint64

	multi transaction
	name  string
	// known means that the client has given the password, or that none is needed.
	known bool
	// wrong counts the wrong passwords since known was set.
	wrong int
	// ending means that the connection ends after the replies are sent.
	ending bool

	// named is the name of the last command, which most clients repeat, or the beginning of a name
	// that is too long for one. last is the command of that name, or nil.
	named []byte
	last  *command

	// throttle is the limit of the last CL.THROTTLE, most clients' only limit. Families.Of has
	// returned its family, so that it never ends, or it is nil.
	throttle struct {
		args   [3]int64
		limit  policy.Policy
		family families.Family
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

func (c *conn) interrupt() { _ = c.net.SetReadDeadline(time.Unix(1, 0)) }

// turn is the number of commands of a read after which other connections are served. Without it
// each of many pipelines runs for 10 ms: with 8 of them on two busy processors the p99 of another
// client was 30 ms rather than 18.
const turn = 32

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

// handshake does TLS's handshake, if any. Otherwise the first read would, within Config.Idle.
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

func (c *conn) answer() error {
	// begun means that a part of the next command has come.
	begun := false
	// timed means that reads have the deadline for the password.
	timed := false
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
		// Commands do not prolong the deadline.
		case timed:
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
			// Shutdown may have set its deadline before.
			return nil
		}
		if c.in.Fill() != nil {
			return nil
		}
		done = 0
	}
}

// Closing a connection with unread bytes resets it, which discards replies that the client has not
// read. So first discard the client's bytes, until it closes, is silent for leaveQuiet, or
// leaveWithin has passed.
const (
	leaveQuiet  = 200 * time.Millisecond
	leaveWithin = 2 * time.Second
)

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

// deadline is set as seldom as possible: for each command it would take a twentieth of a lone
// command's time.
type deadline struct {
	when time.Time
	set  func(time.Time) error
}

// after sets the deadline to at least d from now, and at most an eighth of d more.
func (l *deadline) after(d time.Duration) {
	now := time.Now()
	if left := l.when.Sub(now); left < d || left > d+d/8 {
		l.when = now.Add(d + d/8)
		_ = l.set(l.when)
	}
}

// errSentMore ends a wait with a full reader's buffer: only reading shows that a client left.
var errSentMore = errors.New("the client sent more than is kept while it waits, so its connection ends")

// fullGrace is how long a call goes on with a full reader's buffer. The client may have sent a long
// pipeline, and most calls do not wait.
const fullGrace = time.Second

// waiting calls f with a context that ends when the client leaves, the server ends, or f waits
// fullGrace with a full reader's buffer. In the last case the connection ends after the reply, if f
// has given up. The present command's arguments are invalid after it.
func (c *conn) waiting(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancelCause(c.server.closing)
	defer cancel(nil)
	if c.flush() != nil {
		return
	}
	// The deadline is set anew after this.
	c.reads.when = time.Time{}
	_ = c.net.SetReadDeadline(time.Time{})
	// The reader's buffer keeps the client's bytes meanwhile.
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
