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
	// trusts returns how old Redis's last word about the key's block may be for this link to go by.
	trusts() time.Duration
	// take takes a.n units, which are not 0.
	take(ctx context.Context, a ask) (taken, error)
	// look answers as take would, and takes nothing. For 0 units it answers with the key's state.
	look(ctx context.Context, a ask) (taken, error)
	// giveBack gives units back: all of a.receipt's except a.kept or, without a receipt, any a.n.
	// It charges -a.n units if a.n is below 0.
	giveBack(ctx context.Context, a ask) (taken, error)
}

// ask is a call for units of a key.
type ask struct {
	terms    *terms
	key      string
	n        int64
	patience time.Duration
	returns  bool   // see store.TakeAsk
	isHead   bool   // it is the first call here that waits for units in flight
	id       string // of units in flight
	final    bool   // the caller gives nothing back, so that no receipt is needed
	receipt  any    // of the take that giveBack undoes
	kept     int64

	blocked time.Duration // for how long the key is, as heard from Redis; then a link takes nothing
	why     noAnswer      // of the link before
}

// taken is a link's answer to a call.
type taken struct {
	answer  limits.Answer
	by      link
	receipt any // that the link's giveBack undoes the take by, or nil
	// guess reports that RetryAfter is a guess, not a limit's decision.
	guess   bool
	blocked time.Duration // for how long the key is, if it is refused for that
	// passed has the shares of Config.WarnAt that the call passed, to be warned of if it is admitted.
	passed warn.Set
}
