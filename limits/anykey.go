package limits

import (
	"context"

	"github.com/ral-limiter/ral/policy"
)

// ForAnyKey returns a limiter that holds the calls of all keys together to the limit of l, such as
// a single.Limiter. The limiter is a [Remote] if l is.
func ForAnyKey[K comparable](l Limiter[struct{}]) Limiter[K] { return keyless[K]{l} }

type keyless[K comparable] struct{ only Limiter[struct{}] }

func (l keyless[K]) Admit(ctx context.Context, _ K, n int64) (Answer, error) {
	return l.only.Admit(ctx, struct{}{}, n)
}

func (l keyless[K]) Hold(ctx context.Context, call Call[K]) (Grant, error) {
	return l.only.Hold(ctx, withoutKey(call))
}

func (l keyless[K]) Look(call Call[K]) (answer Answer, ok bool) {
	if only, ok := l.only.(looker[struct{}]); ok {
		return only.Look(withoutKey(call))
	}
	return answer, false
}

func withoutKey[K comparable](call Call[K]) Call[struct{}] {
	return Call[struct{}]{N: call.N, Patience: call.Patience, NoWait: call.NoWait, Limit: call.Limit, Brief: call.Brief}
}

func (l keyless[K]) LimitFor(K) policy.Policy { return l.only.LimitFor(struct{}{}) }

// Limit is LimitFor for a caller that has no key.
func (l keyless[K]) Limit() policy.Policy { return l.only.LimitFor(struct{}{}) }

func (l keyless[K]) Remote() bool { return isRemote(l.only) }

// isRemote reports whether calls of a limiter may leave the process.
func isRemote(l any) bool {
	remote, ok := l.(Remote)
	return ok && remote.Remote()
}
