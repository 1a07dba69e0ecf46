package supervisor

import "context"

// lifeKey is that of the life in a child's context.
type lifeKey struct{}

// Report says how a piece of a child's work has ended, for a child that goes on in either case.
// ctx is the one that its Run was given, or comes from it. The first failure is the event
// ChildFailing, and the first success after it ChildRecovered; what is between them is no event,
// over restarts, too. So a child that fails again and again is told of once. Report never blocks.
// With any other context, and for a child that was abandoned, it does nothing.
func Report(ctx context.Context, err error) {
	l, ok := ctx.Value(lifeKey{}).(*life)
	if !ok {
		return
	}
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.abandoned || s.mu.failing[l.index] == (err != nil) {
		return
	}
	s.mu.failing[l.index] = err != nil
	kind := ChildRecovered
	if err != nil {
		kind = ChildFailing
	}
	s.post(kind, s.children[l.index].Name, err)
}
