package rpclimit

import (
	"context"
	"errors"
	"sync"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
)

// Session is the units that a passing call has taken, and decides a stream's messages. A nil
// Session holds nothing, and its messages take nothing. One goroutine may call Received
// while another calls Sent.
type Session struct {
	guard *Guard
	// verdict is the verdict at the tap.
	verdict Verdict

	// The calls that functions see for a message, one for each direction.
	receiving, sending Call
	stream, opened     bool

	mu struct {
		sync.Mutex
		// held has what was taken at the tap, as the call began, and with the first message.
		held           [3]held
		n              int
		received, sent int64
		ended          bool
		served         Served
		// until is the context of Context, and end ends it. Both are nil if no units in use can be
		// lost.
		until context.Context
		end   context.CancelCauseFunc
	}
}

// held is a controller's taken units of a call.
type held struct {
	by         *entry
	settlement admission.Settlement
	call       *Call
}

func (s *Session) begin(call *Call, controller *entry, taken admission.Settlement) {
	s.stream = call.Stream
	for i := range s.mu.n {
		// At the tap less is known of the call.
		s.mu.held[i].call = call
	}
	if call.Stream {
		s.receiving, s.sending = *call, *call
	}
	if taken != nil {
		s.hold(held{controller, taken, call})
	}
}

// hold keeps held until the call ends. If the call has ended, held is settled at once.
func (s *Session) hold(held held) {
	s.mu.Lock()
	ended, served := s.mu.ended, s.mu.served
	if !ended {
		s.mu.held[s.mu.n] = held
		s.mu.n++
		if s.mu.end != nil {
			admission.EndWhenLost(s.mu.until, s.mu.end, held.by.Lost(held.settlement))
		}
	}
	s.mu.Unlock()
	if ended {
		held.by.Settle(background, held.settlement, held.call, served)
	}
}

// Context returns the context to run the call with, made of the call's own. That context ends with limits.ErrLost
// as its cause if a fleet's server loses units in use of the call, since another call may use them: see
// limits.Grant.Lost. From then on Received and Sent refuse messages as limits.Unavailable. The context also ends
// with the Session. Without units that can be lost it is ctx. A caller must call Context once, before the handler.
func (s *Session) Context(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []<-chan struct{}
	for _, held := range s.mu.held[:s.mu.n] {
		all = append(all, held.by.Lost(held.settlement)...)
	}
	if later := s.stream && s.guard.first != nil; len(all) == 0 && !later {
		return ctx
	}
	s.mu.until, s.mu.end = context.WithCancelCause(ctx)
	admission.EndWhenLost(s.mu.until, s.mu.end, all)
	return s.mu.until
}

// lost refuses the messages of a call whose units in use were lost.
func (s *Session) lost(call *Call) (verdict Verdict, ok bool) {
	if s.mu.until == nil || !errors.Is(context.Cause(s.mu.until), limits.ErrLost) {
		return verdict, false
	}
	reason := admission.Result{Verdict: limits.Verdict{Reason: limits.Unavailable}}
	reason.Provenance = limits.NewProvenance(limits.SourceNone, false, limits.ErrLost)
	verdict = s.guard.verdict(call, reason, nil)
	s.guard.messages.Count(&verdict.Verdict)
	return verdict, true
}

// Received decides a message that a stream received, before the handler sees it. Received waits as
// Begin does. If the verdict is Refused, end the stream with its Code.
func (s *Session) Received(message any) Verdict {
	if s == nil {
		return Verdict{}
	}
	call := &s.receiving
	if verdict, lost := s.lost(call); lost {
		return verdict
	}
	call.Message = message
	if s.opened || s.guard.first == nil {
		return s.message(s.guard.received, call, &s.mu.received, nil)
	}
	s.opened = true
	controller := s.guard.first
	// The functions of the settlement see first.
	first := *call
	verdict, taken := s.guard.decide(controller, &first)
	if taken != nil {
		s.hold(held{controller, taken, &first})
	}
	decided := verdict.Refused() || s.guard.received == nil
	if decided {
		s.guard.messages.Count(&verdict.Verdict)
	}
	s.guard.tell(controller, &first, &verdict)
	if verdict.Refused() {
		return verdict
	}
	if decided {
		call.Message = nil
		s.add(&s.mu.received)
		return verdict
	}
	return s.message(s.guard.received, call, &s.mu.received, &verdict.Verdict)
}

// Sent decides a message that a stream is about to send: see Received.
func (s *Session) Sent(message any) Verdict {
	if s == nil {
		return Verdict{}
	}
	if verdict, lost := s.lost(&s.sending); lost {
		return verdict
	}
	s.sending.Message = message
	return s.message(s.guard.sent, &s.sending, &s.mu.sent, nil)
}

// message decides one message of a stream and counts it in n. A nil entry admits the message. first
// is the result of the first-message limits, or nil. A message that passes is not kept in memory.
func (s *Session) message(controller *entry, call *Call, n *int64, first *limits.Verdict) Verdict {
	if controller == nil {
		call.Message = nil
		s.add(n)
		return Verdict{}
	}
	verdict, taken := s.guard.decide(controller, call)
	if taken != nil {
		// A message has no end.
		controller.Release(background, taken)
	}
	if first == nil {
		s.guard.messages.Count(&verdict.Verdict)
		// A message counts once.
	} else {
		both := verdict.Verdict
		if both.Waited += first.Waited; !first.Reason.Passes() {
			// Under Shadow, the first reason counts.
			both.Reason = first.Reason
		}
		s.guard.messages.Count(&both)
	}
	s.guard.tell(controller, call, &verdict)
	if !verdict.Refused() {
		call.Message = nil
		s.add(n)
	}
	return verdict
}

func (s *Session) add(n *int64) {
	s.mu.Lock()
	*n++
	s.mu.Unlock()
}

// End settles the call: it calls Charge, and gives back or charges the difference. An adapter must
// call End once, when the handler has returned or panicked. Further calls do nothing.
func (s *Session) End(served Served) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.mu.ended {
		s.mu.Unlock()
		return
	}
	served.Received, served.Sent = s.mu.received, s.mu.sent
	if !s.stream {
		served.Received, served.Sent = 1, 0
		if served.Code == CodeOK && !served.Panicked {
			served.Sent = 1
		}
	}
	s.mu.ended, s.mu.served = true, served
	all, end := s.mu.held[:s.mu.n], s.mu.end
	s.mu.Unlock()
	if end != nil {
		end(nil)
	}
	settle(all, served)
}

// settle settles a call. If a Charge panics, the other controllers are settled all the same.
func settle(all []held, served Served) {
	if len(all) == 0 {
		return
	}
	defer settle(all[1:], served)
	held := &all[0]
	held.by.Settle(background, held.settlement, held.call, served)
}

func (s *Session) cancel() {
	if s == nil {
		return
	}
	s.mu.Lock()
	all := s.mu.held[:s.mu.n]
	s.mu.ended = true
	s.mu.Unlock()
	for _, held := range all {
		held.by.Cancel(background, held.settlement)
	}
}
