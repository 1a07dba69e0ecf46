package waitline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/internal/core/seam"
)

// Errors that Wait wraps, unless the error is the Call's.
var (
	ErrCrowded = errors.New("ral: too many calls are waiting")
	// ErrDeadline also reports a turn that comes after the patience.
	ErrDeadline  = errors.New("ral: the turn comes after the deadline")
	ErrCancelled = errors.New("ral: the wait was cancelled")
	ErrClosed    = errors.New("ral: the limiter is closed")
	// ErrNever is for Calls.
	ErrNever = errors.New("ral: the limit never allows this call")
)

// Forever is the patience of a call that waits until its context ends.
const Forever = seam.Forever

// Call is a call that waits for a key. S is a state of the key; equal states give equal forecasts.
// The methods are called with the key's line locked, by the goroutine of any call in it, and must
// not call Lines.
type Call[S comparable] interface {
	// State returns the key's state and the present in nanoseconds of the turns' clock, which may
	// jump.
	State() (state S, now int64)
	// Forecast returns the state after the call takes at the instant at, and how much later its
	// turn is. Forecast must be a pure function.
	Forecast(state S, at int64) (next S, wait time.Duration, verdict Verdict)
	// Alike reports whether both calls go by the same limit. A forecast of calls under different limits is
	// not remembered, since a turn may then come forward as time passes.
	Alike(other Call[S]) bool
	// Take takes units if the turn comes within patience. If notBefore is not 0, the turn must not come before it.
	Take(patience time.Duration, notBefore int64) Answer
	// GiveBack gives back the units of the last Take.
	GiveBack()
	// Refusal returns the error of a call with a verdict other than Fits.
	Refusal(verdict Verdict) error
}

// Blocker is an optional interface of a Call. BlockedFor returns for how much longer the key must
// not be used, whatever turns were promised. If the time is not 0 when a turn has come, the line
// gives back all promised turns, and promises new turns when the time is over, or after Wake. Take
// refuses until then.
type Blocker interface{ BlockedFor() time.Duration }

// Renewer is an optional interface of a Call. Renew reads the key's limit again as the call joins a
// line, because Change may have run since the call was made.
type Renewer interface{ Renew() }

// Releaser is an optional interface of a Call. AwaitsRelease reports whether releases make room for the call,
// rather than the passing of time. No turn of such a call can be foreseen: the call joins its line unless it
// is Never admitted, takes when Wake finds it at the head, or else after RetryIn, and holds no turn ahead.
// All calls of a key are alike in this.
type Releaser interface{ AwaitsRelease() bool }

func awaitsRelease[S comparable](call Call[S]) bool {
	releaser, ok := call.(Releaser)
	return ok && releaser.AwaitsRelease()
}

// Unlocker is an optional interface of a Call. The goroutine of the call runs Unlocked each time that it has unlocked the
// line, before it sleeps. Methods of other Calls may have run while it had the line locked. Unlocked may call Lines.
type Unlocker interface{ Unlocked() }

// Verdict is the result of a forecast.
type Verdict int

const (
	// Fits says that the call would be allowed.
	Fits Verdict = iota
	// NoRoom says that the call would be refused now.
	NoRoom
	// Never says that the call would be refused at any time.
	Never
)

// Answer is the result of Call.Take.
type Answer struct {
	// Taken reports whether units were taken.
	Taken bool
	// Wait is the time until the turn, if units were taken.
	Wait time.Duration
	// Start is the instant of the turn, if units were taken.
	Start int64

	// If nothing was taken, the call leaves with Err. If Err is nil, it tries again after RetryIn.
	Err     error
	RetryIn time.Duration
}

// Options configure Lines. All are required.
type Options[K comparable] struct {
	// Hash returns the hash of a key. ok is false if the key has no hash.
	Hash func(key K) (hash uint64, ok bool)
	// MaxPerKey and MaxTotal are the largest numbers of waiting calls, per key and in all.
	MaxPerKey, MaxTotal int
	// Done is closed to end all waits.
	Done <-chan struct{}
}

// Lines holds the lines of all keys. A line exists while calls wait for its key. Call New to make
// one. Any number of goroutines may call its methods.
type Lines[K, S comparable] struct {
	Options[K]
	seam  seam.Seam
	lines *xsync.MapOf[K, *line[K, S]]
	// count is the number of lines, with some lines that are about to be stored. While it is 0, Has does not look for
	// a line.
	count atomic.Int64
	// waiting is the number of calls in all lines.
	waiting atomic.Int64
	// waits counts the calls that have left.
	waits atomic.Uint64
	// waited is the total time in line of these calls, in nanoseconds.
	waited atomic.Int64
	// paused counts the pauses in force. While paused is positive no call in line takes.
	paused atomic.Int64
	// epoch is the time at which New made the lines.
	epoch time.Time
}

// New returns Lines without lines.
func New[K, S comparable](options Options[K]) *Lines[K, S] {
	// The map's own seed is not mixed in: Hash is seeded, in simulations always alike.
	return &Lines[K, S]{Options: options, epoch: time.Now(), lines: xsync.NewMapOfWithHasher[K, *line[K, S]](func(key K, _ uint64) uint64 {
		// See findable for keys without a hash.
		hash, _ := options.Hash(key)
		return hash
	})}
}

func init() {
	seam.Accept(func(ls interface{ under(seam.Seam) }, points seam.Seam) { ls.under(points) })
}

func (ls *Lines[K, S]) under(points seam.Seam) { ls.seam = points }

// Has reports whether calls wait for the key. Has is one atomic load while no calls wait at all.
func (ls *Lines[K, S]) Has(key K) bool {
	if ls.count.Load() == 0 || !ls.findable(key) {
		return false
	}
	_, ok := ls.lines.Load(key)
	return ok
}

// Behind returns the number of calls that wait for the key, and the wait that the given call would have
// behind them. The call does not join. The wait is 0 if no call waits, if the limit would refuse the call, or
// if the call awaits a release. Keys that cannot be found again do not count.
func (ls *Lines[K, S]) Behind(key K, call Call[S]) (waiting int, wait time.Duration) {
	line := ls.find(key)
	if line == nil {
		return 0, 0
	}
	defer line.unlock()
	waiting = line.queue.Len() + line.promised.Len()
	if awaitsRelease(call) {
		return waiting, 0
	}
	wait, verdict, _ := line.forecast(&waiter[S]{call: call}, false)
	line.trim()
	if verdict != Fits {
		wait = 0
	}
	return waiting, wait
}

// Wait waits in the key's line until the call has taken and its turn has come, and returns nil.
// If Wait returns an error, nothing was taken, or the units were given back. waited is the time that the
// call spent in line, or 0 if it did not join.
//
// ErrCrowded, ErrDeadline and the Call's refusals come at once if they can be foreseen. A turn may come
// later than forecast, because other calls may take first. If patience ends before the turn, the
// error is ErrDeadline; if the context ends, the error is ErrCancelled.
func (ls *Lines[K, S]) Wait(
	ctx context.Context, key K, call Call[S], patience time.Duration,
) (waited time.Duration, err error) {
	began := time.Now()
	w := &waiter[S]{call: call, joined: began.Sub(ls.epoch) + 1, signal: make(chan struct{}, 1)}
	// The line is locked except while the call sleeps: any end, even a panic of a Call, leaves the
	// line to others.
	line := ls.join(key)
	defer line.release()
	if renewer, ok := call.(Renewer); ok {
		// The line is locked, so that a later Change finds the call in line.
		renewer.Renew()
	}
	if err := line.canJoin(ctx, w, patience); err != nil {
		return 0, err
	}
	defer ls.exit(&waited)
	w.element = line.queue.PushBack(w)
	line.publish()
	defer line.leave(w)
	defer func() { waited = time.Since(began) }()
	ls.seam.Step("wait: joined")
	line.advance()
	for {
		pause, done := line.poll(w)
		if done {
			return 0, w.err
		}
		left := patience
		if patience < Forever {
			left -= time.Since(began)
		}
		if left <= 0 {
			return 0, fmt.Errorf("%w: it did not come within %v", ErrDeadline, patience)
		}
		line.unlock()
		if unlocker, ok := call.(Unlocker); ok {
			unlocker.Unlocked()
		}
		_, event := seam.Receive(ls.seam, "wait: sleeps", min(pause, left), w.signal, ctx, ls.Done)
		line.lock()
		switch event {
		case seam.Ended:
			return 0, Cancelled(ctx)
		case seam.Closed:
			return 0, ErrClosed
		}
	}
}

// Cancelled returns an error that wraps ErrCancelled, the context's error and its cause.
func Cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", ErrCancelled, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrCancelled, err, cause)
}

// Pause makes all calls in line give back units that they took ahead of their turn. They take nothing until
// resume is called, which must be called once.
func (ls *Lines[K, S]) Pause() (resume func()) {
	ls.paused.Add(1)
	done := false
	defer func() {
		// A Call panicked.
		if !done {
			ls.paused.Add(-1)
		}
	}()
	if ls.count.Load() > 0 {
		// A line stored meanwhile finds the pause. Calls run later: code inside Range must not
		// panic.
		var all []*line[K, S]
		ls.lines.Range(func(_ K, line *line[K, S]) bool {
			all = append(all, line)
			return true
		})
		for _, line := range all {
			line.pause()
		}
	}
	done = true
	return func() { ls.paused.Add(-1) }
}

// Change runs change, which gives the key another limit. If calls wait for the key, Change does so
// with their line locked. Calls whose turn has not come give back before change. After change renew
// runs for each call without a turn, and the calls take again in order. change and renew must not
// call Lines.
func (ls *Lines[K, S]) Change(key K, change func(), renew func(Call[S])) {
	line := ls.find(key)
	if line == nil {
		change()
		return
	}
	defer line.release()
	line.forget()
	line.revokeTurns(nil)
	change()
	for at := line.queue.Front(); at != nil; at = at.Next() {
		renew(valueOf[S](at).call)
	}
	line.advance()
}

// Empty reports whether no call waits at all. Empty is one atomic load.
func (ls *Lines[K, S]) Empty() bool { return ls.count.Load() == 0 }

// Wake makes the first of the key's waiting calls look again. It must be called after BlockedFor may have changed,
// and after a release.
func (ls *Lines[K, S]) Wake(key K) {
	line := ls.find(key)
	if line == nil {
		return
	}
	// The release wakes the head.
	defer line.release()
	line.retry = time.Time{}
}

// find returns the key's line, locked, or nil if no call waits.
func (ls *Lines[K, S]) find(key K) *line[K, S] {
	for ls.Has(key) {
		line, ok := ls.lines.Load(key)
		if !ok {
			break
		}
		line.lock()
		// The line has left the map, so look again.
		if line.gone {
			line.unlock()
			continue
		}
		return line
	}
	return nil
}

// join returns the key's line, locked, making it if need be. A key that is not findable gets a
// hidden line of its own.
func (ls *Lines[K, S]) join(key K) *line[K, S] {
	if !ls.findable(key) {
		line := newLine(ls, key)
		line.hidden = true
		line.lock()
		return line
	}
	for {
		line, ok := ls.lines.Load(key)
		if !ok {
			// The count rises before the line is stored, so that Has looks.
			ls.count.Add(1)
			if line, ok = ls.lines.LoadOrStore(key, newLine(ls, key)); ok {
				ls.count.Add(-1)
			}
		}
		line.lock()
		if !line.gone {
			return line
		}
		// The line has left the map, so look again.
		line.unlock()
	}
}

// remove takes the empty, locked line out of the map, unless the line has left: calls that are over
// may still be about to release it. The line is marked first, under its lock, so that no call joins
// it afterwards.
func (ls *Lines[K, S]) remove(line *line[K, S]) {
	if line.hidden || line.gone {
		return
	}
	line.gone = true
	ls.lines.Delete(line.key)
	ls.count.Add(-1)
}

// findable reports whether the key can be looked up. A NaN or a slice in an interface cannot.
func (ls *Lines[K, S]) findable(key K) bool {
	_, ok := ls.Hash(key)
	return ok && key == key //nolint:gocritic // false for NaN
}

// enter counts a call that joins, if there is room. The count never exceeds MaxTotal.
func (ls *Lines[K, S]) enter() bool {
	for {
		n := ls.waiting.Load()
		if n >= int64(ls.MaxTotal) {
			return false
		}
		if ls.waiting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (ls *Lines[K, S]) exit(waited *time.Duration) {
	ls.waited.Add(int64(*waited))
	ls.waits.Add(1)
	ls.waiting.Add(-1)
}

// Count returns the number of calls in all lines, of calls that have left, served or not, and the
// total time of these in line.
func (ls *Lines[K, S]) Count() (waiting int, waits uint64, waited time.Duration) {
	return int(ls.waiting.Load()), ls.waits.Load(), time.Duration(ls.waited.Load())
}

// LongestWait returns the longest time that a call now in line has waited, or 0 if no call waits. LongestWait locks
// no line. The cost grows with the number of lines. Lines of keys that cannot be
// found again do not count.
func (ls *Lines[K, S]) LongestWait() (longest time.Duration) {
	if ls.waiting.Load() == 0 {
		return 0
	}
	now := time.Since(ls.epoch) + 1
	ls.lines.Range(func(_ K, line *line[K, S]) bool {
		if joined := line.oldest.Load(); joined > 0 {
			longest = max(longest, now-time.Duration(joined))
		}
		return true
	})
	return longest
}

func (ls *Lines[K, S]) full() error {
	return fmt.Errorf("%w: %d for all keys, of at most %[2]d", ErrCrowded, ls.MaxTotal)
}
