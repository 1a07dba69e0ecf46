package fleet

import (
	"context"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

// ChangeLimit tells Redis that the key's own limit has changed, as for a customer that upgrades: see
// engine.Engine.ChangeLimit. After 10 of 10 an hour, 990 of 1,000 an hour remain. nil stands for the
// limiter's own limit. keep is engine.KeepUsed unless given; the last counts. Under a SlidingLog or an
// InFlight a unit counts as one under every limit: nothing changes, and engine.KeepShare is KeepUsed.
//
// One server must call ChangeLimit, once for each change, at the time from which all use the new limit: a
// repeated call translates again. Promised turns are kept. Settle reservations first, except those of
// units in use: Keep and Cancel give back a unit's time under the limit that it was taken by. Units that a server's share let
// pass meanwhile count as of that limit, too.
//
// The error is ErrMisfit for a limit of another family, a *policy.FieldError for another keep,
// ErrModeUnsupported in Leased mode, or as from Take. If Redis could not be asked, the error wraps
// ErrOutage. Nothing has changed then, unless an answer was lost, as with ErrBudget.
func (l *Limiter) ChangeLimit(ctx context.Context, key string, from, to policy.Policy, keep ...engine.Keep) error {
	share, err := decide.KeepsShare(keep)
	if err != nil {
		return err
	}
	if l.leased != nil {
		return unsupported("ChangeLimit")
	}
	old, err := l.orOwn(from, key)
	if err != nil {
		return err
	}
	next, err := l.orOwn(to, key)
	if err != nil {
		return err
	}
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if next.wordless || old == next {
		return nil
	}
	was, is := old.limit.Policy(), next.limit.Policy()
	change := store.Rewrite{Tail: store.Tail(key), Next: func(word uint64, now policy.Instant) uint64 {
		if carried, ok := decide.Carry(was, word, is, now, share); ok {
			return carried
		}
		return word
	}}
	_, err = askOnce(ctx, &l.access, l.guardOf(next, key), l.config.Budget, func(ctx context.Context, decider decider) (struct{}, error) {
		return struct{}{}, decider.RewriteAll(ctx, next.limit, []store.Rewrite{change}, l.config.Budget)
	})
	err, _ = forCaller(err)
	return err
}
