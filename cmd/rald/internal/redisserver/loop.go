package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
)

func newConn(server *Server, nc net.Conn) *conn {
	c := &conn{server: server, net: nc, id: server.ids.Add(1), known: server.config.Password == "", call: server.config.Limits.Begin()}
	limits := server.config.Command
	if !c.known {
		limits = greeting
	}
	c.reads.set, c.writes.set = nc.SetReadDeadline, nc.SetWriteDeadline
	c.in, c.out = resp.NewReader(nc, limits), resp.NewWriter(nc)
	return c
}

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
