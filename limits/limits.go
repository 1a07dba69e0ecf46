package limits

import (
	"context"
	"errors"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Limiter holds each key to a limit. A Limiter's methods are safe for concurrent use. engine.Engine,
// engine.Tiered, engine.Shares and fleet.Limiter are Limiters. So is single.Limiter, whose only key is
// struct{}{}: [ForAnyKey] adapts it to keys of any type. A Limiter whose calls may leave the process
// is also a [Remote].
type Limiter[K comparable] interface {
	// Admit takes n units of the key now, all or none. n == 0 looks without taking. n below 0 or
	// above the limit is refused with policy.Never. Admit waits only under a limit that delays
	// calls by itself, as a policy.Queue does up to its own length. The units are used for good.
	//
	// A refusal is no error. An error means no decision: the context ended, the limiter is closed,
	// or the limiter cannot keep such a key. Then nothing was taken in process, but a remote
	// limiter may have taken. A call that is decided in process without waiting ignores its
	// context.
	Admit(ctx context.Context, key K, n int64) (Answer, error)

	// Hold takes units that can be returned or corrected. Hold can also wait, and apply Call.Limit.
	Hold(ctx context.Context, call Call[K]) (Grant, error)

	// LimitFor returns the limit that holds for the key now. If there are several, it returns the
	// limit with the smallest Limit. LimitFor takes nothing and never waits. The limit is nil if
	// there is none, for example for a zero engine.Tiered.
	LimitFor(key K) policy.Policy
}

// Remote is implemented by limiters whose calls may leave the process.
type Remote interface {
	// Remote reports whether a call may have to wait for another process.
	Remote() bool
}

// looker is an optional interface of limiters in process, by which AskAll sees a refusal before it takes from
// any limiter.
type looker[K comparable] interface {
	// Look returns the answer that Hold would give now without waiting. Look takes nothing, counts
	// nothing and never waits. ok is false if only Hold can tell, as with calls in line before it.
	Look(call Call[K]) (a Answer, ok bool)
}

// Call is a request to Limiter.Hold. The zero Call looks at the zero key.
type Call[K comparable] struct {
	Key K
	// N is the number of units: see Limiter.Admit.
	N int64
	// Patience is the longest time that the call waits for its turn. At 0 or less, the call waits only
	// where Admit does.
	Patience time.Duration
	// NoWait makes the call return at once. The units are taken for a turn within Patience;
	// Decision.Wait is the delay before their use. Limiters that cannot promise a turn (several
	// limits, or a fleet in Leased mode) refuse unless the units are available now.
	NoWait bool
	// Limit, if not nil, is the limit for this call, for example of a plan that comes with the request. The limit
	// must be of the family of the limiter's own: see engine.Engine.TakeWith. A limiter that cannot
	// apply Limit takes nothing, and refuses with policy.Never and a Decision.Limit of 0.
	Limit policy.Policy
	// Brief reports that the grant is settled at once or never. A limiter may then keep no
	// record of the take. Without that record, a fleet gives units back less the part that drained meanwhile.
	Brief bool
}

// Pair is a key made of two keys, for example by httplimit.Both or rpclimit.Both.
type Pair[A, B comparable] struct {
	A A
	B B
}

// Answer is the result of a call. The zero Answer is a refusal without a decision.
type Answer struct {
	// Decision is as in package policy, after any wait. Wait is how long the call has waited, or
	// under Call.NoWait the delay still to come.
	policy.Decision
	// Provenance says how the answer was reached. Provenance is a pointer, so that Answers are
	// returned in registers.
	*Provenance
}

// Provenance tells how answers were reached. A Provenance is immutable and shared by many answers.
// A nil Provenance means no decision: SourceNone, not exact. Its methods may be called.
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

// Exact reports whether Remaining, RetryAfter and ResetAfter describe the whole limit. Otherwise they
// describe this process's part of it, or are guesses. These must not be told to clients, except as
// TellsRetry allows. A
// RetryAfter of policy.Never always means that the call asks for more than the limit allows.
func (p *Provenance) Exact() bool { return p != nil && p.exact }

// Guess reports whether a refusal's RetryAfter may be told to clients as a guess. It is then the time
// until this process's share of the limit has room, since Redis could not be asked.
func (p *Provenance) Guess() bool {
	return p.Source() == SourceShare && !errors.Is(p.err, ErrBlocked)
}

// TellsRetry reports whether a refusal's RetryAfter may be told to clients, exact or as a guess.
func (p *Provenance) TellsRetry() bool { return p.Exact() || p.Guess() }

// Err returns why the limit alone did not decide, or nil. The limit's keeper could not be asked, no
// more calls may wait for the key, Call.Limit is refused, or a fleet's key is blocked (ErrBlocked).
func (p *Provenance) Err() error {
	if p == nil {
		return nil
	}
	return p.err
}

// ErrBlocked is wrapped by the Err of a fleet.Limiter's answer that refuses a blocked key. An
// engine's answers do not tell a block from the limit.
var ErrBlocked = errors.New("ral: the key is blocked")

// Source says which process decided, and by which state.
type Source uint8

const (
	// SourceNone: no decision. The zero Answer has SourceNone.
	SourceNone Source = iota
	// SourceProcess: this process decided, and it keeps the whole limit.
	SourceProcess
	// SourceUnrecorded: this process decided as configured for keys that it cannot record now.
	// The units of an allowed call are not counted, or are counted under some of several limits only.
	SourceUnrecorded
	// SourceRedis: Redis decided.
	SourceRedis
	// SourceLease: this process decided, on units that it holds or by a recent answer of Redis.
	SourceLease
	// SourceShare: without Redis, this process decided by its share of the limit.
	SourceShare
	// SourceOpen: without Redis, the call passed as configured. Its units are not counted.
	SourceOpen
	// SourceClosed: without Redis, the call was refused as configured, or for want of a share.
	SourceClosed

	sources
)

// String returns "none", "process", "unrecorded", "exact", "leased", "local", "open" or "closed".
func (s Source) String() string {
	if s >= sources {
		s = SourceNone
	}
	return [sources]string{"none", "process", "unrecorded", "exact", "leased", "local", "open", "closed"}[s]
}

// Grant has the units that Hold has taken, with its Answer. The zero Grant and a refused Grant hold
// nothing. Its methods must not be called at the same time. The first call of Settle, Release or Cancel
// ends a Grant. A copy must not be ended as well: that may give back units of other calls.
//
// Settle corrects the units to those that the call used. Release ends a call that used all of them:
// units in flight come back, and units of rates stay spent. Cancel leaves the key as if the call had
// not come. Lost tells a call that still runs that its units in use no longer count.
type Grant struct {
	Answer
	// State is set by the limiter. Callers use Settle and Cancel.
	State GrantState
}

// Settle ends the grant. used is the total number of units that the call used. Unused units go back, as far as promises to
// later calls allow: see engine.Reservation.Keep. An excess is charged even beyond the limit, as
// far as one call may: see engine.Engine.Refund. A used below 0 is taken for 0. A limiter in process
// returns nil. A remote limiter's error says that the difference may not have been applied. The
// context bounds the time for which a remote limiter is asked.
func (g *Grant) Settle(ctx context.Context, used int64) error {
	return g.end(ctx, max(used, 0))
}

func (g *Grant) end(ctx context.Context, used int64) error {
	state := g.State
	g.State = GrantState{}
	if state.Settler == nil {
		return nil
	}
	if state.record != nil {
		state.record.ended(state.number, used)
	}
	return state.Settler.Settle(ctx, state, used)
}

// Cancel is Settle with no units used.
func (g *Grant) Cancel(ctx context.Context) error { return g.Settle(ctx, 0) }

// Release ends the grant and gives back its units in use, those of a policy.InFlight. Units of other limits
// stay spent. The error is as for Settle.
func (g *Grant) Release(ctx context.Context) error { return g.end(ctx, AllUsed) }

// Lost returns a channel that is closed if the limiter gives up the grant's units in use before they are
// released, since it may have admitted another call in their place: the call should end. The channel is
// nil for a grant that cannot lose its units. A caller must call Lost before the grant ends.
func (g *Grant) Lost() <-chan struct{} {
	if loser, ok := g.State.Settler.(interface {
		Lost(state GrantState) <-chan struct{}
	}); ok {
		return loser.Lost(g.State)
	}
	return nil
}

// ErrLost is the cause of a context that ended because units in use were lost: see [Grant.Lost].
var ErrLost = errors.New("ral: units in use were lost, and may be in use by another call")

// AllUsed is the argument of [Settler] for a grant whose units were all used, however many there are.
const AllUsed = -1

// GrantState is a limiter's record of the units of a [Grant], without allocation. The zero
// GrantState holds no units.
type GrantState struct {
	// Settler is nil if the grant holds no units.
	Settler Settler
	// Ref, Limit and Words are for the Settler alone. A pointer in Ref costs no allocation.
	Ref   any
	Limit policy.Policy
	Words [8]int64

	// record and number are set by a Recorder: its file, and the number of the grant in the file.
	record *record
	number uint64
}

// Settler is implemented by limiters, for [Grant.Settle].
type Settler interface {
	// Settle ends the grant. used is the number of units that the call used, 0 or more, or AllUsed. Units of a
	// policy.InFlight are released in any case, and never charged. Settle is called once.
	//
	// A Settler whose units in use can be lost also has Lost(state GrantState) <-chan struct{}, for Grant.Lost.
	Settle(ctx context.Context, state GrantState, used int64) error
}
