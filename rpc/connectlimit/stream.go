package connectlimit

import (
	"context"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		verdict, session := i.guard.Begin(&rpclimit.Call{
			Context:   ctx,
			Procedure: conn.Spec().Procedure,
			Peer:      rpclimit.ParsePeer(conn.Peer().Addr),
			Header:    header(conn.RequestHeader()),
			Stream:    true,
			Tapped:    calls.Tapped(ctx, i.guard),
		})
		if verdict.Refused() {
			return refusal(&verdict)
		}
		tell(&verdict, new([2]string), conn.ResponseHeader)
		if session == nil {
			return next(ctx, conn)
		}
		limited := &limitedConn{StreamingHandlerConn: conn, session: session}
		served := rpclimit.Served{Panicked: true} // until the handler has returned
		defer func() { session.End(served) }()
		during := session.Context(ctx)
		err = orLost(during, next(during, limited))
		if refused := limited.refused.Load(); refused != nil {
			err = refused
		}
		served = rpclimit.Served{Code: codeOf(err)}
		return err
	}
}

// limitedConn decides each message. One goroutine may receive while another sends.
type limitedConn struct {
	connect.StreamingHandlerConn
	session *rpclimit.Session
	refused atomic.Pointer[connect.Error] // the first refusal, which ends the stream
}

func (c *limitedConn) Receive(message any) error {
	if refused := c.refused.Load(); refused != nil {
		return refused
	}
	if err := c.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	return c.decide(c.session.Received(message))
}

func (c *limitedConn) Send(message any) error {
	if refused := c.refused.Load(); refused != nil {
		return refused
	}
	if err := c.decide(c.session.Sent(message)); err != nil {
		return err
	}
	return c.StreamingHandlerConn.Send(message)
}

func (c *limitedConn) decide(verdict rpclimit.Verdict) error {
	if !verdict.Refused() {
		return nil
	}
	c.refused.CompareAndSwap(nil, refusal(&verdict))
	return c.refused.Load()
}
