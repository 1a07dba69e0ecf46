package fleet

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/limits"
)

// link is a way to decide calls. A limiter asks its links in their order (leased, exact, fallback)
// until one answers. The error noAnswer passes the call on to the next link; any other error ends it.
type link interface {
	// trusts returns the greatest age of Redis's last word about a block that this link believes.
	trusts() time.Duration
	// take takes a.n units, which are not 0.
	take(ctx context.Context, a ask) (taken, error)
	// look answers as take would, and takes nothing. For 0 units look answers with the key's state.
	look(ctx context.Context, a ask) (taken, error)
	// giveBack gives units back: all of a.receipt's except a.kept or, without a receipt, any a.n.
	// giveBack charges -a.n units if a.n is below 0.
	giveBack(ctx context.Context, a ask) (taken, error)
}

// ask is a call for units of a key.
type ask struct {
	terms    *terms
	key      string
	n        int64
	patience time.Duration
	// returns is TakeAsk.Returns.
	returns bool
	// isHead means that this is the first call here that waits for units in flight.
	isHead bool
	// id is the ID of units in flight.
	id string
	// final means that the caller gives nothing back, so that no receipt is needed.
	final bool
	// receipt is the receipt of the take that giveBack undoes.
	receipt any
	kept    int64

	// blocked is for how long the key is blocked, as heard from Redis. Then a link takes nothing.
	blocked time.Duration
	// why is the answer of the link before.
	why noAnswer
}

// taken is a link's answer to a call.
type taken struct {
	answer limits.Answer
	by     link
	// receipt is what the link's giveBack undoes the take by, or nil.
	receipt any
	// guess reports that RetryAfter is a guess, not a limit's decision.
	guess bool
	// blocked is for how long the key is blocked, if the call is refused for that.
	blocked time.Duration
	// passed has the shares of Config.WarnAt that the call passed, to be warned of if the call is
	// admitted.
	passed warn.Set
}
