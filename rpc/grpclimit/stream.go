package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// StreamServerInterceptor returns an interceptor that holds streams to the limits: see
// [UnaryServerInterceptor]. A stream takes as it opens, and for each message by
// rpclimit.Options.CostReceived and CostSent, before the handler receives it or it is sent. After a
// refused message, RecvMsg and SendMsg return the refusal, and the client gets it, whatever the
// handler returns. The RateLimit fields of the opening are in the header, or else in the trailer.
// Streams keep their context, unless units in use can be lost: see rpclimit.Session.Context. A call of RecvMsg that
// waits for a message then does not return by itself, so a handler should heed the context.
func StreamServerInterceptor(guard *rpclimit.Guard) grpc.StreamServerInterceptor {
	mustHave(guard, "StreamServerInterceptor")
	return func(server any, serverStream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		call := &rpclimit.Call{Stream: true}
		incoming(call, serverStream.Context(), info.FullMethod)
		call.Tapped = calls.Tapped(serverStream.Context(), guard)
		verdict, session := guard.Begin(call)
		if verdict.Refused() {
			trailer, err := refusal(&verdict)
			serverStream.SetTrailer(trailer)
			return err
		}
		policies, standing := verdict.AppendRateLimit(nil)
		s := &stream{ServerStream: serverStream, session: session, ctx: session.Context(serverStream.Context()), fields: withFields(nil, &[2]string{policies, string(standing)})}
		if session == nil && s.fields == nil {
			return handler(server, serverStream)
		}
		return s.run(server, handler)
	}
}

// stream decides each message. A goroutine may receive while another sends.
type stream struct {
	grpc.ServerStream
	session *rpclimit.Session
	ctx     context.Context
	// fields are the RateLimit fields, or nil.
	fields metadata.MD
	told   atomic.Bool
	// refused is the first refusal, which ends the stream.
	refused atomic.Pointer[refusedMessage]
}

type refusedMessage struct {
	err     error
	trailer metadata.MD
}

func (s *stream) run(server any, handler grpc.StreamHandler) (err error) {
	// The handler counts as panicked until it has returned.
	served := rpclimit.Served{Panicked: true}
	defer func() { s.session.End(served) }()
	err = orLost(s.ctx, handler(server, s))
	if refused := s.refused.Load(); refused != nil {
		err = refused.err
		s.SetTrailer(refused.trailer)
	} else if s.fields != nil && !s.told.Load() {
		s.SetTrailer(s.fields)
	}
	served = rpclimit.Served{Code: codeOf(err)}
	return err
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) RecvMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.decide(s.session.Received(m))
}

func (s *stream) SendMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.err
	}
	if err := s.decide(s.session.Sent(m)); err != nil {
		return err
	}
	s.tell()
	return s.ServerStream.SendMsg(m)
}

func (s *stream) SendHeader(md metadata.MD) error {
	s.tell()
	return s.ServerStream.SendHeader(md)
}

// decide keeps the first refusal of a message, and returns it.
func (s *stream) decide(verdict rpclimit.Verdict) error {
	if !verdict.Refused() {
		return nil
	}
	trailer, err := refusal(&verdict)
	s.refused.CompareAndSwap(nil, &refusedMessage{err, trailer})
	return s.refused.Load().err
}

// tell adds the fields to the header before it is sent. Without a header clients may retry.
func (s *stream) tell() {
	if s.fields != nil && !s.told.Load() && s.SetHeader(s.fields) == nil {
		s.told.Store(true)
	}
}
