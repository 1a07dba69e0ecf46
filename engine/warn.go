package engine

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// Warning says that a key has passed a share of its limit.
type Warning[K comparable] struct {
	Key K
	// Share is the passed share, of Config.WarnAt.
	Share float64
	// Decision is the key's state after the call that passed the share. Remaining is what is left
	// of Limit.
	Decision policy.Decision
	Time     time.Time
	// Missed is the number of warnings that OnWarn did not receive before this one.
	Missed int
}

// LatestWarnings returns the last warnings, the newest first: at most n, and at most 64.
func (e *Engine[K]) LatestWarnings(n int) []Warning[K] { return e.warned.latest(n) }

// warnings counts and delivers the warnings of an engine. The nil warnings has none.
type warnings[K comparable] struct {
	events *keyEvents[K]
	box    *supervisor.Mailbox[Warning[K]]
	list   warn.Latest[Warning[K]]
}

func newWarnings[K comparable](hook func(Warning[K]), events *keyEvents[K]) *warnings[K] {
	w := &warnings[K]{events: events}
	if hook != nil {
		w.box = supervisor.NewMailbox(func(warning Warning[K], missed int) {
			warning.Missed = missed
			hook(warning)
		}, func(_ Warning[K], reason error) {
			events.post(supervisor.HookFault, reason)
		})
	}
	return w
}

// add is called on the goroutine of the call that passed the share, and calls no code of the user's.
func (w *warnings[K]) add(key K, share float64, decision policy.Decision) {
	warning := Warning[K]{Key: key, Share: share, Decision: decision, Time: time.Now()}
	w.list.Add(warning)
	w.box.Post(warning)
	w.events.post(supervisor.Notice, warn.Notice(w.events.hash(key), share, decision))
}

func (w *warnings[K]) count() uint64 {
	if w == nil {
		return 0
	}
	return w.list.Count()
}

func (w *warnings[K]) latest(n int) []Warning[K] {
	if w == nil {
		return nil
	}
	return w.list.Newest(n)
}

func (w *warnings[K]) flush() {
	if w != nil {
		w.box.Flush()
	}
}
