package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Batch makes simultaneous calls as a single call, which costs less. Each has its own budget and
// outcome. No call waits for others to come, nor for those under way while there is a worker. An
// answer that comes when its caller has gone serves no other call: see Unused. Any number of
// goroutines may use a Batch. NewBatch makes a Batch; the zero value is of no use.
type Batch[Q comparable, A any] struct {
	guard *Guard
	call  func(ctx context.Context, asks []Q, reply func(i int, value A, err error))

	mu sync.Mutex
	// open is the batch that other calls may join, or nil.
	open *batch[Q, A]

	batches, tickets sync.Pool
	// unused are answers that came too late for their callers. Such an answer serves no other call:
	// the server decided it before it began, and its units may not be used in a later window, or
	// closer to another turn. mu guards it.
	unused []unused[Q, A]
}

type unused[Q comparable, A any] struct {
	ask   Q
	value A
}

// maxUnused bounds how many are kept for Unused.
const maxUnused = 4096

// maxBatch bounds the calls made together. The first waits until the last is answered.
const maxBatch = 64

// NewBatch returns a batch of the guard's. call gets the asks of some calls, and replies to each
// once before it returns. call must keep neither argument.
func NewBatch[Q comparable, A any](breaker *Guard, call func(ctx context.Context, asks []Q, reply func(i int, value A, err error))) *Batch[Q, A] {
	b := &Batch[Q, A]{guard: breaker, call: call}
	b.batches.New = func() any { return &batch[Q, A]{parent: b} }
	b.tickets.New = func() any { return &ticket[Q, A]{done: make(chan struct{}, 1)} }
	return b
}

// ticket is a call. Once the ticket is sent, value and err are the worker's until its last act, the
// send on done. A caller that received from done may reuse the ticket. An abandoned ticket is not
// reused.
type ticket[Q comparable, A any] struct {
	state atomic.Int32
	pass  pass
	ask   Q
	value A
	err   error
	done  chan struct{}
}

const (
	waiting int32 = iota
	sent
	answered
	// An abandoned ticket was given up by its caller before the answer came.
	abandoned
)

// errOrphaned tells a ticket to join another batch.
var errOrphaned = errors.New("the batch was not sent")

type batch[Q comparable, A any] struct {
	parent  *Batch[Q, A]
	tickets []*ticket[Q, A]
	asks    []Q
}

// Do asks, and returns the reply, or an error like the function Do. Do returns when the budget is
// spent. A call not sent within the budget is dropped, with ErrBusy.
func (b *Batch[Q, A]) Do(ctx context.Context, ask Q) (A, error) {
	var none A
	guard := b.guard
	pass, err := guard.enter(ctx)
	if err != nil {
		return none, err
	}
	timer := guard.timer(guard.config.Budget)
	defer guard.timers.Put(timer)
	defer timer.Stop()

	t := b.tickets.Get().(*ticket[Q, A])
	t.ask, t.pass = ask, pass
	for {
		if err = b.join(ctx, t, timer.C); err != nil {
			guard.breaker.leave(pass, unsure, nil)
			return none, err
		}
		select {
		case <-t.done:
		case <-timer.C:
			if !guard.arrived(t.done) || errors.Is(t.err, errOrphaned) {
				return b.late(t)
			}
		case <-ctx.Done():
			t.giveUp(guard)
			return none, context.Cause(ctx)
		case <-guard.base.Done():
			t.giveUp(guard)
			return none, ErrClosed
		}
		if errors.Is(t.err, errOrphaned) {
			continue
		}
		return b.answer(t)
	}
}

// answer returns a ticket's reply and frees the ticket.
func (b *Batch[Q, A]) answer(ticket *ticket[Q, A]) (A, error) {
	var none A
	value, err := ticket.value, ticket.err
	ticket.value, ticket.err = none, nil
	b.tickets.Put(ticket)
	if err != nil && b.guard.config.Failed(err) {
		return none, err
	}
	return value, err
}

func (b *Batch[Q, A]) late(ticket *ticket[Q, A]) (A, error) {
	guard := b.guard
	state := ticket.giveUp(guard)
	// The answer came just now.
	if state == answered {
		<-ticket.done
		return b.answer(ticket)
	}
	var none A
	err := fmt.Errorf("%w of %v", ErrBudget, guard.config.Budget)
	if state == waiting {
		err = fmt.Errorf("%w: %w (%d)", err, ErrBusy, guard.config.MaxInFlight)
	}
	return none, err
}

// giveUp leaves a sent ticket to its worker, and a waiting ticket unsent. giveUp returns the old
// state.
func (t *ticket[Q, A]) giveUp(guard *Guard) (before int32) {
	switch {
	case t.state.CompareAndSwap(waiting, abandoned):
		guard.breaker.leave(t.pass, unsure, nil)
		return waiting
	case t.state.CompareAndSwap(sent, abandoned):
		return sent
	}
	return answered
}

// join adds the ticket to the open batch. The first of a batch starts it.
func (b *Batch[Q, A]) join(ctx context.Context, ticket *ticket[Q, A], expired <-chan time.Time) error {
	ticket.state.Store(waiting)
	b.mu.Lock()
	all, first := b.open, false
	if all == nil {
		all, first = b.batches.Get().(*batch[Q, A]), true
		b.open = all
	}
	all.tickets = append(all.tickets, ticket)
	if len(all.tickets) == maxBatch {
		b.open = nil
	}
	b.mu.Unlock()
	if !first {
		return nil
	}
	err := b.guard.start(ctx, all, b.guard.config.Budget, expired)
	// The other calls may have more patience.
	if err != nil {
		all.close()
		for _, other := range all.tickets[1:] {
			other.err = errOrphaned
			other.done <- struct{}{}
		}
	}
	return err
}

func (all *batch[Q, A]) close() {
	all.parent.mu.Lock()
	defer all.parent.mu.Unlock()
	if all.parent.open == all {
		all.parent.open = nil
	}
}

func (all *batch[Q, A]) run(base context.Context) {
	// Runnable callers can join the batch. The call is free if there are none.
	runtime.Gosched()
	all.close()
	tickets := all.tickets[:0]
	for _, ticket := range all.tickets {
		if ticket.state.CompareAndSwap(waiting, sent) {
			tickets = append(tickets, ticket)
			all.asks = append(all.asks, ticket.ask)
		}
	}
	if len(tickets) > 0 {
		all.send(base, tickets)
	}
	clear(all.tickets)
	clear(all.asks)
	all.tickets, all.asks = all.tickets[:0], all.asks[:0]
	all.parent.batches.Put(all)
}

func (all *batch[Q, A]) send(base context.Context, tickets []*ticket[Q, A]) {
	batch, guard := all.parent, all.parent.guard
	ctx, cancel := context.WithTimeout(base, guard.config.CallTimeout)
	defer cancel()
	sending := guard.send(guard.config.Budget)
	var heard atomic.Bool
	batch.call(ctx, all.asks, func(i int, value A, err error) {
		ticket := tickets[i]
		outcome := guard.outcome(sending, err)
		if outcome < bad && heard.CompareAndSwap(false, true) {
			guard.watch.hear(sending)
		}
		guard.breaker.leave(ticket.pass, outcome, err)
		ticket.value, ticket.err = value, err
		if ticket.state.CompareAndSwap(sent, answered) {
			ticket.done <- struct{}{}
		} else if err == nil {
			batch.keepUnused(ticket.ask, value)
		}
	})
	guard.watch.receive(sending)
	guard.count(sending, heard.Load())
}

// Unused passes to use each late answer received since the previous call of Unused, at most 4,096.
func (b *Batch[Q, A]) Unused(use func(ask Q, value A)) {
	b.mu.Lock()
	all := b.unused
	b.unused = nil
	b.mu.Unlock()
	for _, unused := range all {
		use(unused.ask, unused.value)
	}
}

func (b *Batch[Q, A]) keepUnused(ask Q, value A) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.unused) < maxUnused {
		b.unused = append(b.unused, unused[Q, A]{ask, value})
	}
}
