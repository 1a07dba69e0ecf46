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
// to come, nor for those that are under way as long as there is a worker. Its methods may
// be called by any number of goroutines. The zero value is of no use: see NewBatch.
type Batch[Q, A any] struct {
	guard *Guard
	call  func(ctx context.Context, asks []Q, reply func(i int, value A, err error))

	mu   sync.Mutex
	open *batch[Q, A] // which others may join, or nil

	batches, tickets sync.Pool
}

// together is how many calls are made as one at most. The first of them waits until the
// last is answered.
const together = 64

// NewBatch returns a batch of the guard's. call is given what some calls ask, and has each
// replied once before it returns. It keeps neither of its arguments.
func NewBatch[Q, A any](g *Guard, call func(ctx context.Context, asks []Q, reply func(i int, value A, err error))) *Batch[Q, A] {
	b := &Batch[Q, A]{guard: g, call: call}
	b.batches.New = func() any { return &batch[Q, A]{of: b} }
	b.tickets.New = func() any { return &ticket[Q, A]{done: make(chan struct{}, 1)} }
	return b
}

// ticket is one call. When it is sent, value and err are the worker's, until that sends on
// done, which is the last it does. So whoever received from done may use it for another
// call; one that was given up is not used again.
type ticket[Q, A any] struct {
	state atomic.Int32
	ask   Q
	value A
	err   error
	done  chan struct{}
}

// The states of a ticket.
const (
	waiting int32 = iota
	sent
	abandoned // before it was sent: nobody asks for it any more
)

// errOrphaned tells a ticket to join another batch.
var errOrphaned = errors.New("the batch was not sent")

// batch is a job: tickets to be sent together.
type batch[Q, A any] struct {
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
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if g.base.Err() != nil {
		return none, ErrClosed
	}
	p, err := g.breaker.enter()
	if err != nil {
		return none, err
	}
	o := unsure
	defer func() { g.breaker.leave(p, o, err) }() // also if Failed panics

	timer := g.timer(g.config.Budget)
	defer g.timers.Put(timer)
	defer timer.Stop()

	t := b.tickets.Get().(*ticket[Q, A])
	t.ask = ask
	for {
		if err = b.join(ctx, t, timer.C); err != nil {
			return none, err
		}
		select {
		case <-t.done:
			if errors.Is(t.err, errOrphaned) {
				continue
			}
			var value A
			value, err = t.value, t.err
			b.tickets.Put(t)
			if err != nil && g.config.Failed(err) {
				o = bad
				return none, err
			}
			o = good
			return value, err
		case <-timer.C:
			o, err = bad, fmt.Errorf("%w of %v", ErrBudget, g.config.Budget)
			if t.abandon() {
				err = fmt.Errorf("%w: %w (%d)", err, ErrBusy, g.config.Most)
			}
		case <-ctx.Done():
			t.abandon()
			err = context.Cause(ctx)
		case <-g.base.Done():
			t.abandon()
			err = ErrClosed
		}
		return none, err
	}
}

// abandon tells whether it came before the ticket was sent.
func (t *ticket[Q, A]) abandon() bool { return t.state.CompareAndSwap(waiting, abandoned) }

// join has the ticket be sent with others. Who is the first of a batch has it sent.
func (b *Batch[Q, A]) join(ctx context.Context, t *ticket[Q, A], expired <-chan time.Time) error {
	t.state.Store(waiting)
	b.mu.Lock()
	all, first := b.open, false
	if all == nil {
		all, first = b.batches.Get().(*batch[Q, A]), true
		b.open = all
	}
	all.tickets = append(all.tickets, t)
	if len(all.tickets) == together {
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

// close lets nobody join any more.
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
	sending := all.tickets[:0]
	for _, t := range all.tickets {
		if t.state.CompareAndSwap(waiting, sent) {
			sending = append(sending, t)
			all.asks = append(all.asks, t.ask)
		}
	}
	if len(sending) > 0 {
		ctx, cancel := context.WithTimeout(base, all.of.guard.config.Hang)
		all.of.call(ctx, all.asks, func(i int, value A, err error) {
			t := sending[i]
			t.value, t.err = value, err
			t.done <- struct{}{}
		})
		cancel()
	}
	clear(all.tickets)
	clear(all.asks)
	all.tickets, all.asks = all.tickets[:0], all.asks[:0]
	all.of.batches.Put(all)
}
