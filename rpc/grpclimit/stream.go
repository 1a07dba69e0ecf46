package grpclimit

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ral-limiter/ral/rpclimit"
)

// StreamServerInterceptor returns an interceptor that holds streams to the limits: see [UnaryServerInterceptor]. A
// stream takes as it opens, and for each message what rpclimit.Options.CostReceived and CostSent say: a message that is
// received before the handler sees it, and one that is sent before it is sent. If a message is refused, the stream's
// RecvMsg and SendMsg return the refusal from then on, and the client is told the refusal, whatever the handler returns.
//
// It sends the RateLimit fields, as they were when the stream opened, with the header, or with the trailer if none was
// sent. Streams keep their context and their Context method.
func StreamServerInterceptor(limits *rpclimit.Limits) grpc.StreamServerInterceptor {
	mustHave(limits, "StreamServerInterceptor")
	taps := limits.Taps()
	return func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		call := &rpclimit.Call{Stream: true}
		incoming(call, ss.Context(), info.FullMethod)
		if taps {
			call.Tapped = tapped(ss.Context(), limits)
		}
		verdict, session := limits.Begin(call)
		if verdict.Refused() {
			trailer, err := refusal(&verdict)
			ss.SetTrailer(trailer)
			return err
		}
		policies, standing := verdict.AppendRateLimit(nil)
		s := &stream{ServerStream: ss, session: session, fields: withFields(nil, &[2]string{policies, string(standing)})}
		if session == nil && s.fields == nil {
			return handler(server, ss)
		}
		return s.run(server, handler)
	}
}

// stream is a stream each message of which is decided. As of any grpc.ServerStream, one goroutine may receive while
// another sends.
type stream struct {
	grpc.ServerStream
	session *rpclimit.Session
	fields  metadata.MD // what an admitted stream is told, nil for nothing
	told    atomic.Bool
	refused atomic.Pointer[refusedMessage] // the first one, which ends the stream
}

type refusedMessage struct {
	err     error
	trailer metadata.MD
}

// run runs the handler, and settles what the stream has taken, also if the handler panics.
func (s *stream) run(server any, handler grpc.StreamHandler) (err error) {
	served := rpclimit.Served{Panicked: true} // until the handler has returned
	defer func() { s.session.End(served) }()
	err = handler(server, s)
	if refused := s.refused.Load(); refused != nil {
		err = refused.err
		s.SetTrailer(refused.trailer)
	} else if s.fields != nil && !s.told.Load() {
		s.SetTrailer(s.fields)
	}
	served = rpclimit.Served{Code: codeOf(err)}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.decide(s.session.Received(m))
}

// SendMsg implements grpc.ServerStream.
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

// SendHeader implements grpc.ServerStream.
func (s *stream) SendHeader(md metadata.MD) error {
	s.tell()
	return s.ServerStream.SendHeader(md)
}

// decide notes a refusal of a message, and returns the first one.
func (s *stream) decide(v rpclimit.Verdict) error {
	if !v.Refused() {
		return nil
	}
	trailer, err := refusal(&v)
	s.refused.CompareAndSwap(nil, &refusedMessage{err, trailer})
	return s.refused.Load().err
}

// tell adds the fields to the header that is about to be sent. A handler that fails before has none, so that clients
// may retry.
func (s *stream) tell() {
	if s.fields != nil && !s.told.Load() && s.SetHeader(s.fields) == nil {
		s.told.Store(true)
	}
}
