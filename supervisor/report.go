package supervisor

import "context"

// lifeKey is the context key of a child's life.
type lifeKey struct{}

// Report reports the result of a piece of a child's work, for a child that goes on either way. ctx
// is the context of its Run, or derived from it. The first failure is the event ChildFailing, and
// the first success after it ChildRecovered; other reports are no events, even across restarts.
// Report never blocks. With any other context, and for an abandoned child, Report does nothing.
func Report(ctx context.Context, err error) {
	l, ok := ctx.Value(lifeKey{}).(*life)
	if !ok {
		return
	}
	supervisor := l.s
	supervisor.mu.Lock()
	defer supervisor.mu.Unlock()
	if l.abandoned || supervisor.mu.failing[l.index] == (err != nil) {
		return
	}
	supervisor.mu.failing[l.index] = err != nil
	kind := ChildRecovered
	if err != nil {
		kind = ChildFailing
	}
	supervisor.post(kind, supervisor.children[l.index].Name, err)
}
