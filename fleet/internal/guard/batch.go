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

// Batch makes calls that come at the same time as one, which costs less than so many. Each
// has a budget and an outcome of its own, and is given up by itself. None waits for others
// to come, nor for those that are under way as long as there is a worker.
//
// An answer that comes when its caller has gone serves no other call: see Unused.
//
// Its methods may be called by any number of goroutines. The zero value is of no use: see
// NewBatch.
type Batch[Q comparable, A any] struct {
	guard *Guard
	call  func(ctx context.Context, asks []Q, reply func(i int, value A, err error))

	mu   sync.Mutex
	open *batch[Q, A] // which others may join, or nil

	batches, tickets sync.Pool
	unused           unused[Q, A]
}

// maxBatch is how many calls are made as one at most. The first of them waits until the
// last is answered.
const maxBatch = 64

// NewBatch returns a batch of the guard's. call is given what some calls ask, and has each
// replied once before it returns. It keeps neither of its arguments.
func NewBatch[Q comparable, A any](g *Guard, call func(ctx context.Context, asks []Q, reply func(i int, value A, err error))) *Batch[Q, A] {
	b := &Batch[Q, A]{guard: g, call: call}
	b.batches.New = func() any { return &batch[Q, A]{of: b} }
	b.tickets.New = func() any { return &ticket[Q, A]{done: make(chan struct{}, 1)} }
	return b
}

// ticket is one call. When it is sent, value and err are the worker's, until that sends on
// done, which is the last it does. A caller that received from done may use the ticket for
// another call; one that was given up is not used again.
type ticket[Q comparable, A any] struct {
	state atomic.Int32
	pass  pass
	ask   Q
	value A
	err   error
	done  chan struct{}
}

// The states of a ticket.
const (
	waiting int32 = iota
	sent
	answered
	abandoned // by its caller, before it was answered
)

// errOrphaned tells a ticket to join another batch.
var errOrphaned = errors.New("the batch was not sent")

// batch is a job: tickets to be sent together.
type batch[Q comparable, A any] struct {
	of      *Batch[Q, A]
	tickets []*ticket[Q, A]
	asks    []Q
}

// Do asks, and returns what it was replied, or an error as those of the function Do. It
// returns when the budget is spent, whatever the call does that it is part of. What was
// given up before it was sent is not sent, which ErrBusy says if the budget was spent.
func (b *Batch[Q, A]) Do(ctx context.Context, ask Q) (A, error) {
	var none A
	g := b.guard
	p, err := g.enter(ctx)
	if err != nil {
		return none, err
	}
	timer := g.timer(g.config.Budget)
	defer g.timers.Put(timer)
	defer timer.Stop()

	t := b.tickets.Get().(*ticket[Q, A])
	t.ask, t.pass = ask, p
	for {
		if err = b.join(ctx, t, timer.C); err != nil {
			g.breaker.leave(p, unsure, nil)
			return none, err
		}
		select {
		case <-t.done:
		case <-timer.C:
			if !g.arrived(t.done) || errors.Is(t.err, errOrphaned) {
				return b.late(t)
			}
		case <-ctx.Done():
			t.giveUp(g)
			return none, context.Cause(ctx)
		case <-g.base.Done():
			t.giveUp(g)
			return none, ErrClosed
		}
		if errors.Is(t.err, errOrphaned) {
			continue
		}
		return b.answer(t)
	}
}

// answer returns what a ticket was replied, which is free then.
func (b *Batch[Q, A]) answer(t *ticket[Q, A]) (A, error) {
	var none A
	value, err := t.value, t.err
	t.value, t.err = none, nil
	b.tickets.Put(t)
	if err != nil && b.guard.config.Failed(err) {
		return none, err
	}
	return value, err
}

// late answers a call whose budget is spent.
func (b *Batch[Q, A]) late(t *ticket[Q, A]) (A, error) {
	g := b.guard
	state := t.giveUp(g)
	if state == answered { // just now
		<-t.done
		return b.answer(t)
	}
	var none A
	err := fmt.Errorf("%w of %v", ErrBudget, g.config.Budget)
	if state == waiting {
		err = fmt.Errorf("%w: %w (%d)", err, ErrBusy, g.config.MaxInFlight)
	}
	return none, err
}

// giveUp leaves the ticket to its worker, unless that has answered it. One that was not
// sent yet never is. It returns the state from before.
func (t *ticket[Q, A]) giveUp(g *Guard) (before int32) {
	switch {
	case t.state.CompareAndSwap(waiting, abandoned):
		g.breaker.leave(t.pass, unsure, nil)
		return waiting
	case t.state.CompareAndSwap(sent, abandoned):
		return sent
	}
	return answered
}

// join has the ticket be sent with others. The first of a batch has it sent.
func (b *Batch[Q, A]) join(ctx context.Context, t *ticket[Q, A], expired <-chan time.Time) error {
	t.state.Store(waiting)
	b.mu.Lock()
	all, first := b.open, false
	if all == nil {
		all, first = b.batches.Get().(*batch[Q, A]), true
		b.open = all
	}
	all.tickets = append(all.tickets, t)
	if len(all.tickets) == maxBatch {
		b.open = nil
	}
	b.mu.Unlock()
	if !first {
		return nil
	}
	err := b.guard.start(ctx, all, b.guard.config.Budget, expired)
	if err != nil { // the others may have more patience
		all.close()
		for _, other := range all.tickets[1:] {
			other.err = errOrphaned
			other.done <- struct{}{}
		}
	}
	return err
}

// close lets no other call join.
func (all *batch[Q, A]) close() {
	all.of.mu.Lock()
	defer all.of.mu.Unlock()
	if all.of.open == all {
		all.of.open = nil
	}
}

// run implements job.
func (all *batch[Q, A]) run(base context.Context) {
	runtime.Gosched() // callers that are about to run join; if there are none it costs nothing
	all.close()
	tickets := all.tickets[:0]
	for _, t := range all.tickets {
		if t.state.CompareAndSwap(waiting, sent) {
			tickets = append(tickets, t)
			all.asks = append(all.asks, t.ask)
		}
	}
	if len(tickets) > 0 {
		all.send(base, tickets)
	}
	clear(all.tickets)
	clear(all.asks)
	all.tickets, all.asks = all.tickets[:0], all.asks[:0]
	all.of.batches.Put(all)
}

// send makes the tickets' calls as one.
func (all *batch[Q, A]) send(base context.Context, tickets []*ticket[Q, A]) {
	b, g := all.of, all.of.guard
	ctx, cancel := context.WithTimeout(base, g.config.CallTimeout)
	defer cancel()
	s := g.send(g.config.Budget)
	var heard atomic.Bool
	b.call(ctx, all.asks, func(i int, value A, err error) {
		t := tickets[i]
		o := g.outcome(s, err)
		if o < bad && heard.CompareAndSwap(false, true) {
			g.watch.hear(s)
		}
		g.breaker.leave(t.pass, o, err)
		t.value, t.err = value, err
		if t.state.CompareAndSwap(sent, answered) {
			t.done <- struct{}{}
		} else if err == nil {
			b.unused.put(t.ask, value)
		}
	})
	g.watch.receive(s)
	g.count(s, heard.Load())
}
