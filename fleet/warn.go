package fleet

import (
	"strings"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// warnings finds, remembers and delivers the warnings of a limiter. The nil warnings has none. Those of Shares
// have no shares of a limit, and only post.
type warnings struct {
	shares warn.Shares
	keys   *warn.Texts
	list   warn.Latest[engine.Warning[string]]
	// box is nil without Config.OnWarn.
	box *supervisor.Mailbox[engine.Warning[string]]
	// nudge wakes the keeper.
	nudge func()

	// mu is a leaf.
	mu struct {
		sync.Mutex
		// events are for the keeper to tell, at most warn.MaxLatest.
		events []Event
	}
}

func newWarnings(config Config, nudge func()) *warnings {
	if len(config.WarnAt) == 0 && config.also == nil {
		return nil
	}
	w := &warnings{shares: config.WarnAt, keys: warn.NewTexts(), nudge: nudge}
	if config.OnWarn != nil {
		w.box = supervisor.NewMailbox(func(warning engine.Warning[string], missed int) {
			warning.Missed = missed
			config.OnWarn(warning)
		}, func(_ engine.Warning[string], reason error) {
			w.post(Event{Kind: HookFailed, Err: reason})
		})
	}
	return w
}

// passed returns the shares of a limit that a take of n units passed. word is the key's at the take,
// and decision the decision. A wordless limit has no word, and its Remaining is n less after a take.
func (w *warnings) passed(limit policy.Policy, word uint64, now policy.Instant, n int64, decision *policy.Decision) warn.Set {
	if w == nil || len(w.shares) == 0 || !decision.Allowed {
		return 0
	}
	most, before := shape.AtOnce(limit), decision.Remaining+n
	if decision.Remaining > w.shares.First(most) {
		return 0
	}
	if !store.Wordless(limit) {
		_, state := limit.Take(word, now, 0, 0)
		before = state.Remaining
	}
	return w.shares.Passed(most, before, decision.Remaining)
}

// add warns of the shares that a take of the key passed, each unless this server warned of it since the
// key was last unused. It calls no code of the user's.
func (w *warnings) add(under *terms, key string, passed warn.Set, decision *policy.Decision) {
	if passed == 0 {
		return
	}
	for share, notice := range w.keys.Fresh(w.shares, passed, under, key, decision) {
		warning := engine.Warning[string]{Key: strings.Clone(key), Share: share, Decision: *decision, Time: time.Now()}
		w.list.Add(warning)
		w.box.Post(warning)
		w.post(Event{Kind: SharePassed, Err: notice})
	}
}

// post leaves an event for the keeper, unless too many wait.
func (w *warnings) post(event Event) {
	w.mu.Lock()
	if len(w.mu.events) < warn.MaxLatest {
		w.mu.events = append(w.mu.events, event)
	}
	w.mu.Unlock()
	w.nudge()
}

// takeEvents returns the posted events, and forgets them.
func (w *warnings) takeEvents() (events []Event) {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		events, w.mu.events = w.mu.events, nil
	}
	return events
}
