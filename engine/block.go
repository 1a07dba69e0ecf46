package engine

import (
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// Penalty blocks keys that go on calling although they are refused: Refusals within Within block a
// key for For, the next time for twice as long, up to Max. A call that the key's limit refuses
// counts once. Calls refused by a block do not count. Nor do refusals with policy.Never, without
// the key's word (see Stats.Unavailable and Stats.Full), or because the context ended or the engine
// was closed. A key that many clients share is blocked for all. The zero Penalty blocks no key.
// docs/choosing.md has an example.
type Penalty struct {
	// Refusals is the number that blocks the key, 1 to 1024. Required. Calls that begin after the
	// last of them has returned are refused.
	Refusals int

	// Within is the time for the refusals, from the first of them, and anew from the first after it
	// has passed or after a block. So a key that is not blocked has at most 2*Refusals-2 of them in
	// any such time. Within is rounded up, by less than 1,024 ns. Required, at most 4 years.
	Within time.Duration

	// For is the length of the first block. Required, at most 4 years.
	For time.Duration

	// Max bounds the doubling of blocks. The default is For, the most 32768 times For.
	Max time.Duration

	// Forget is the time after which For holds again. Forget begins at the end of the key's last
	// block, or at the first refusal of its last Within if later. The default is the longer of Max
	// and Within; at least Within, at most 4 years.
	Forget time.Duration
}

// ErrFull is returned by Block if Config.MaxKeys keys are blocked, or if the writer made no room
// within Config.OpenTimeout.
var ErrFull = cell.ErrFull

// Block refuses the key for d, whatever its limit says, by every verb. A block holds for calls that
// begin after Block has returned, until d has passed since Block was called. RetryAfter is the end
// of the block, or of the limit's refusal if later, and is exact. Peek and Take for no units are
// then not Allowed, and Remaining is 0. Of several blocks of a key, the last to end holds.
//
// Calls that wait (Wait, Acquire, AcquireAll) also wait for the end of a block, if their patience
// and deadline allow. Otherwise these calls get ErrDeadline at once. Calls for no units do not
// wait, and get ErrDeadline. Calls in line already return no earlier than the block ends. Turns
// promised by Reserve and units taken before stand. The limit goes on: units drain, and Refund,
// SetPolicy and ChangeLimit work.
//
// A d of 0 lifts the key's block, and forgets its refusals for Config.Penalty. Calls that wait for
// the end of the block go on. Reset does so, too, and also forgets the key's use. At most
// Config.MaxKeys keys are remembered beside the table, as blocked or for a Penalty. None
// is given up while it is blocked. Save and Config.State keep blocks.
//
// The first Block starts two goroutines, unless Config.Penalty has. From then on a call takes
// somewhat longer (docs/experiments.md). Blocks end 9 years after the engine's time began. The
// error is a *policy.FieldError unless d is 0 to 4 years (35040h), ErrClosed, ErrUnavailable, or
// ErrFull. The key is then as before.
func (e *Engine[K]) Block(key K, d time.Duration) error {
	const want = "0 to 35040h0m0s"
	bad := &policy.FieldError{Of: "engine.Block", Field: "d", Value: d, Want: want}
	if d < 0 || d > penalty.Longest {
		return e.named(bad)
	}
	if e.closed.Load() {
		return e.named(ErrClosed)
	}
	if d == 0 {
		e.cell.Unblock(key)
		return nil
	}
	blocks, err := e.blocksTable()
	if err != nil {
		return e.named(err)
	}
	err = blocks.cell.Block(penalty.Lock{Rule: blocks.rule, For: d}, key)
	switch {
	case errors.Is(err, cell.ErrNever):
		bad.Want = "a time before the end of the engine's, 9 years after it began"
		err = bad
	case err != nil && e.closed.Load():
		err = ErrClosed
	case err == nil:
		blocks.made.Add(1)
	}
	return e.named(err)
}

// Blocked returns the time until the key's block ends; 0 if it is not blocked. Blocked never waits.
func (e *Engine[K]) Blocked(key K) time.Duration {
	if blocks := e.blocks.Load(); blocks != nil {
		return blocks.cell.Blocked(key)
	}
	return 0
}

// AllBlocked yields the blocked keys with the time until their blocks end, in no order. AllBlocked
// blocks no call. Keys whose block begins or ends meanwhile may be missed.
func (e *Engine[K]) AllBlocked() iter.Seq2[K, time.Duration] {
	if blocks := e.blocks.Load(); blocks != nil {
		return blocks.cell.AllBlocked()
	}
	return func(func(K, time.Duration) bool) {}
}

// blocksEngine holds another engine's keys that are blocked, or have refusals that count. Its limit
// is a penalty.Rule. The other engine's cell asks it.
type blocksEngine[K comparable] struct {
	*Engine[K]
	rule     *penalty.Rule
	refusals *cell.Refusals
	// made counts the blocks by Block.
	made atomic.Uint64
}

func (b *blocksEngine[K]) blocked() (n int) {
	if b.Len() > censusNow {
		// A blocked key is refused one unit more.
		return b.census.counted().All
	}
	for range b.cell.AllBlocked() {
		n++
	}
	return n
}

func (e *Engine[K]) startBlocks(loaded *loaded[K]) error {
	config := e.config.forBlocks()
	config.seed, config.source = e.cell.Seed(), &e.time
	b := &blocksEngine[K]{rule: config.Policy.(*penalty.Rule), refusals: &cell.Refusals{}}
	if b.rule.Counts() {
		config.refusals = b.refusals
	}
	var err error
	if b.Engine, err = start(config, options[K]{}, loaded, nil); err != nil {
		return err
	}
	// This comes first, since a call of Block that finds b blocks by it.
	e.cell.BlockBy(b.cell)
	e.blocks.Store(b)
	return nil
}

// blocksTable returns the engine for the blocks of e, and starts it if needed.
func (e *Engine[K]) blocksTable() (*blocksEngine[K], error) {
	if engine := e.blocks.Load(); engine != nil {
		return engine, nil
	}
	e.blocking.Lock()
	defer e.blocking.Unlock()
	if e.closed.Load() {
		return nil, ErrClosed
	}
	if engine := e.blocks.Load(); engine != nil {
		return engine, nil
	}
	if err := e.startBlocks(nil); err != nil {
		return nil, err
	}
	return e.blocks.Load(), nil
}

// stopBlocks ends the goroutines for the blocks of e, and lets none start. The blocks hold on.
func (e *Engine[K]) stopBlocks() {
	e.blocking.Lock()
	defer e.blocking.Unlock()
	if engine := e.blocks.Load(); engine != nil {
		engine.stopRunning()
	}
}

func (e *Engine[K]) endBlocks() {
	if blocksEngine := e.blocks.Load(); blocksEngine != nil {
		blocksEngine.closing.Do(func() {
			blocksEngine.closed.Store(true)
			blocksEngine.control.Close()
		})
	}
}

func oneAtATime(hook func(Event)) func(Event) {
	if hook == nil {
		hook = logFaults
	}
	var mu sync.Mutex
	return func(event Event) {
		mu.Lock()
		defer mu.Unlock()
		hook(event)
	}
}

// logFaults is the default Config.OnEvent. The texts are eventlog's.
func logFaults(event Event) {
	switch event.Kind {
	case supervisor.Escalated:
		slog.Error("ral: the limiter is degraded: it records no new key from now on", "limit", event.Supervisor, "error", event.Err)
	case supervisor.ChildFailing:
		slog.Error("ral: the state of the limiter is not saved", "limit", event.Supervisor, "error", event.Err)
	case supervisor.ChildRecovered:
		slog.Info("ral: the state of the limiter is saved again", "limit", event.Supervisor)
	}
}

func (p Penalty) rule() *penalty.Rule {
	return &penalty.Rule{Refusals: int64(p.Refusals), Within: p.Within, For: p.For, Max: p.Max, Forget: p.Forget}
}

func (p Penalty) withDefaults() Penalty {
	if p != (Penalty{}) {
		rule := p.rule()
		rule.FillIn()
		p.Max, p.Forget = rule.Max, rule.Forget
	}
	return p
}

func (c Config) penaltyFault() error {
	if c.Penalty == (Penalty{}) {
		return nil
	}
	return c.Penalty.rule().Check("engine.Config")
}
