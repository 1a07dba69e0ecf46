package configured

import (
	"log/slog"
	"sync/atomic"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// warner logs the keys that pass a share of their limit's warn-at, and remembers which it has logged.
type warner struct {
	keys *warn.Texts
	// log is a mailbox, so that no call waits for the log.
	log *supervisor.Mailbox[notice]
}

type notice struct{ limit, text string }

func newWarner(log *slog.Logger) *warner {
	to := eventlog.New(log)
	return &warner{keys: warn.NewTexts(), log: supervisor.NewMailbox(func(n notice, _ int) {
		to.Record(slog.LevelWarn, "ral: a key has passed a share of its limit", slog.String("limit", n.limit), slog.String("warning", n.text))
	}, func(notice, error) {})}
}

// warned is a limit whose keys are warned of.
type warned struct {
	policy policy.Policy
	name   string
	warnAt warn.Shares
	// warnings counts also before the limit changed.
	warnings *atomic.Uint64
}

// took warns of the shares that an admitted take of n units passed. At most Remaining and n units remained
// before it, so no passed share is missed. A limit that grants units on credit had fewer, and may warn of
// a key that was past the share.
func (w *warner) took(under *warned, key string, n int64, d *policy.Decision) {
	if len(under.warnAt) == 0 || !d.Allowed || n <= 0 {
		return
	}
	// A share of an outage has a lower limit.
	most := min(shape.AtOnce(under.policy), d.Limit)
	passed := under.warnAt.Passed(most, d.Remaining+n, d.Remaining)
	if passed == 0 {
		return
	}
	for _, text := range w.keys.Fresh(under.warnAt, passed, under, key, d) {
		under.warnings.Add(1)
		w.log.Post(notice{under.name, text.Error()})
	}
}
