package configured

import (
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// warner logs the keys that pass a share of their limit's warn-at, and remembers which it has logged.
type warner struct {
	begun time.Time
	seed  maphash.Seed
	table warn.Table
	log   *supervisor.Mailbox[notice] // so that no call waits for the log
}

type notice struct{ limit, text string }

func newWarner(log *slog.Logger) *warner {
	to := eventlog.New(log)
	return &warner{begun: time.Now(), seed: maphash.MakeSeed(), log: supervisor.NewMailbox(func(n notice, _ int) {
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
	most := min(shape.AtOnce(under.policy), d.Limit) // a share of an outage has a lower limit
	passed := under.warnAt.Passed(most, d.Remaining+n, d.Remaining)
	if passed == 0 {
		return
	}
	hash := maphash.Comparable(w.seed, struct {
		under *warned // a changed limit warns anew
		key   string
	}{under, key})
	now := int64(time.Since(w.begun))
	for share := range w.table.Fresh(under.warnAt, passed, hash, now, now+int64(d.ResetAfter)) {
		under.warnings.Add(1)
		w.log.Post(notice{under.name, warn.Notice(maphash.String(w.seed, key), share, *d).Error()})
	}
}
