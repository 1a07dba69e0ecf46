package limits

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Limiter holds each key to a limit. Any number of goroutines may call its methods.
// engine.Engine, engine.Tiered and fleet.Limiter are Limiters, and single.Limiter is one of
// the only key struct{}: see [ForAnyKey].
//
// A Limiter of which a call may leave the process is a [Remote], too.
type Limiter[K comparable] interface {
	// Ask takes n units of the key now, all or none. n == 0 looks without taking. Below 0,
	// and above the limit, is refused with policy.Never. It waits only under a limit that
	// delays calls by itself, as a policy.Queue does up to its own length. The units are
	// used for good: what may be given back is taken by Hold.
	//
	// A refusal is no error. The error says that there is no decision: the context ended,
	// or the limiter is closed, or it cannot keep such a key. Nothing was taken then in
	// process. A remote limiter may have taken, as its answer may have been lost. A call
	// that is decided in process and does not wait does not look at its context.
	Ask(ctx context.Context, key K, n int64) (Answer, error)

	// Hold is Ask for all else: for units of which some may be given back, or that may be
	// too few, for calls that wait, and for limits that come with the call.
	Hold(ctx context.Context, call Call[K]) (Grant, error)

	// LimitFor returns the limit that holds for the key now, for its figures. It takes
	// nothing and never waits. Of several limits on the key, it is the one with the
	// smallest Limit. It is nil if there is none, as of a zero engine.Tiered.
	LimitFor(key K) policy.Policy
}

// Remote is implemented by limiters of which calls may leave the process.
type Remote interface {
	// Remote reports whether a call may have to wait for another process.
	Remote() bool
}

// Looker is implemented by limiters in process that can tell the answer of a call before it
// takes, for AskAll.
type Looker[K comparable] interface {
	// Look returns the answer that Hold would give to the call now if it did not wait. It
	// takes nothing, counts nothing and never waits. ok is false if only Hold can tell, for
	// instance because other calls are in line before it.
	Look(call Call[K]) (a Answer, ok bool)
}

// Batcher is implemented by remote limiters of which several can be asked in one exchange,
// for AskAll.
type Batcher[K comparable] interface {
	Remote
	// HoldAll takes the units of every part or of none, each of 1 unit or more. This
	// limiter's is one of them. No part waits: a limit that would delay the call refuses,
	// and Patience and NoWait are left aside. There is a grant for each part. If not all are
	// Allowed nothing is held. ok is false, and nothing was asked, if these parts cannot be
	// decided in one exchange. The error is as of Hold.
	HoldAll(ctx context.Context, parts []Part[K]) (grants []Grant, ok bool, err error)
}

// Part is a call of one of several limiters, for Batcher.
type Part[K comparable] struct {
	Limiter Limiter[K]
	Call    Call[K]
}

// Call is what a Limiter is asked for by Hold. The zero Call looks at the zero key.
type Call[K comparable] struct {
	Key K
	// N is the number of units: see Limiter.Ask.
	N int64
	// Patience is the longest time that the call waits for its turn. With 0 or less it
	// waits under a limit that delays calls by itself, as a policy.Queue does up to its
	// own length, and under no other.
	Patience time.Duration
	// NoWait makes the call return at once. The units are taken for a turn within
	// Patience, and Decision.Wait is the delay after which to use them. A limiter that
	// promises no turns, as one of several limits, or a fleet in Leased mode, refuses what
	// is not there at once.
	NoWait bool
	// Limit is the limit that holds for this call, as for a plan that comes with the
	// request. It must be of the family of the limiter's own: see engine.Engine.TakeWith.
	// A limiter that cannot apply it refuses with policy.Never and a Decision.Limit of 0,
	// and takes nothing. nil is the limit that holds for the key.
	Limit policy.Policy
}

// Pair is a key made of two keys, as httplimit.Both and rpclimit.Both make it.
type Pair[A, B comparable] struct {
	A A
	B B
}

// Answer is what a call is told. The zero Answer is a refusal that nothing decided.
type Answer struct {
	// Decision is as in package policy, with one exception: Wait is the time for which the
	// call has waited. Its turn has come if it is Allowed. Only under Call.NoWait is the
	// delay still to come. If the call waited, the other figures are those after the wait.
	policy.Decision
	*Provenance // how the answer was reached
}

// Provenance tells how answers were reached. It never changes, so that many answers share
// one. A pointer keeps an Answer small enough to be returned in registers. A nil Provenance
// is that of no decision: it has SourceNone and is not exact. Its methods may be called.
type Provenance struct {
	source Source
	exact  bool
	err    error
}

// NewProvenance returns a Provenance with the results of its methods.
func NewProvenance(source Source, exact bool, err error) *Provenance {
	return &Provenance{source, exact, err}
}

// Source returns the kind of decision.
func (p *Provenance) Source() Source {
	if p == nil {
		return SourceNone
	}
	return p.source
}

// Exact reports whether Remaining, RetryAfter and ResetAfter are those of the limit, as
// policy.Decision has them. Otherwise they describe the part of it that this process knows
// of, or are guesses: do not tell them to clients. A RetryAfter of policy.Never always means
// that the call asks for more than the limit allows.
func (p *Provenance) Exact() bool { return p != nil && p.exact }

// Err returns the reason why the answer is not that of the limit alone: the limit's keeper
// could not be asked, no more calls may wait for the key, the limiter does not take the limit
// that came with the call, or the key is blocked (ErrBlocked, of a fleet). It is nil otherwise.
func (p *Provenance) Err() error {
	if p == nil {
		return nil
	}
	return p.err
}

// ErrBlocked is wrapped by the Err of a fleet.Limiter's answer that refuses a call because
// its key is blocked, whatever its limit says. An engine's answers do not tell a block from
// the limit.
var ErrBlocked = errors.New("ral: the key is blocked")

// Source is what an answer was decided by.
type Source uint8

const (
	// SourceNone: no decision. The zero Answer has it.
	SourceNone Source = iota
	// SourceProcess: this process decided, which keeps the whole limit.
	SourceProcess
	// SourceUnrecorded: this process decided as it was configured for keys that it cannot
	// record now. What was allowed is not counted, or not under all of several limits.
	SourceUnrecorded
	// SourceRedis: Redis decided.
	SourceRedis
	// SourceLease: this process decided, on units that it holds or by what Redis said of
	// late.
	SourceLease
	// SourceShare: Redis was not available, and this process decided by its share of the
	// limit.
	SourceShare
	// SourceOpen: Redis was not available, and the call passed as configured. What was
	// allowed is not counted.
	SourceOpen
	// SourceClosed: Redis was not available, and the call was refused as configured, or
	// because there is no share to go by.
	SourceClosed

	sources
)

// String is one word: "none", "process", "unrecorded", "exact", "leased", "local", "open"
// or "closed".
func (s Source) String() string {
	if s >= sources {
		s = SourceNone
	}
	return [sources]string{"none", "process", "unrecorded", "exact", "leased", "local", "open", "closed"}[s]
}

// Grant is what Hold has taken, with the answer about it. Its methods are for one goroutine
// at a time, and the first call ends it. A copy must not be ended as well. The zero Grant,
// and one that is not Allowed, hold nothing.
type Grant struct {
	Answer
	// Held is set by the limiter. Callers use Settle and Cancel.
	Held Held
}

// Settle ends the grant with so many units used in all. If they are fewer than were taken,
// the others go back to where they came from, as far as that leaves to later calls what
// they were promised: see engine.Reservation.Keep. If they are more, the difference is
// charged, whether the limit allows it or not, as far as one call may: see
// engine.Engine.Refund. used below 0 is 0.
//
// A limiter in process returns nil. The error of a remote one says that the difference may
// still be as it was. The context bounds how long it is asked.
func (g *Grant) Settle(ctx context.Context, used int64) error {
	held := g.Held
	g.Held = Held{}
	if held.Of == nil {
		return nil
	}
	return held.Of.Settle(ctx, held, max(used, 0))
}

// Cancel is Settle with no units used.
func (g *Grant) Cancel(ctx context.Context) error { return g.Settle(ctx, 0) }

// Held is what a limiter took, in a form that costs it no allocation. Only the limiter that
// made it reads it. The zero Held holds nothing.
type Held struct {
	Of    Holder        // settles it
	Ref   any           // what the limiter puts there: a pointer costs no allocation
	Limit policy.Policy // and so are these
	Words [8]int64
}

// Holder is implemented by limiters, for [Grant.Settle].
type Holder interface {
	// Settle ends what is held with so many units used, 0 or more. It is called once.
	Settle(ctx context.Context, held Held, used int64) error
}
