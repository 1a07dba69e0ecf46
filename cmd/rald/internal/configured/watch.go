package configured

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// watcher is of all limits with settings that need each decision.
type watcher struct {
	// keys has the keys that were warned of.
	keys *warn.Texts
	// log is a mailbox, so that no call waits for the log.
	log *supervisor.Mailbox[notice]
}

type notice struct {
	text, limit string
	detail      slog.Attr
}

func newWatcher(log *slog.Logger) *watcher {
	to := eventlog.New(log)
	return &watcher{keys: warn.NewTexts(), log: supervisor.NewMailbox(func(n notice, _ int) {
		to.Record(slog.LevelWarn, n.text, slog.String("limit", n.limit), n.detail)
	}, func(notice, error) {})}
}

// watch has the settings of a limit that need each decision.
type watch struct {
	*watcher
	warnAt warn.Shares
	shadow bool
	// asked is a Trial if there is a candidate, otherwise the family's limiter.
	asked limits.Limiter[string]
	// refusals counts refusals by the rule of a penalty, which is nil without one.
	rule     *penalty.Rule
	refusals *engine.Engine[string]
}

// Counts count for a limit, also before it changed.
type Counts struct {
	// Warnings counts the warnings of a warn-at, and Passed the refused calls that passed in shadow.
	Warnings, Passed atomic.Uint64
}

// Counts returns the counts of the limit, and the Trial of its candidate. Both are nil without a warn-at,
// penalty, shadow and candidate, and the Trial without a candidate.
func (u *Use) Counts() (*Counts, *limits.Trial[string]) {
	if u.by == nil {
		return nil, nil
	}
	return u.by.counts, u.by.trial()
}

// settings returns a text that tells a limit and its settings.
func settings(named limitfile.Named) string {
	if named.Of == nil {
		return named.Policy.String()
	}
	return fmt.Sprint(named.Policy, named.Of.WarnAt, named.Of.Penalty, named.Of.Shadow, named.Of.Candidate, named.IsShared())
}

// watch has next heed its settings. It goes on with the counts and the Trial of the limit before, which may be nil.
func (l *Limits) watch(next, was *limit) (err error) {
	var before *limits.Trial[string]
	if was != nil {
		next.counts, before = was.counts, was.trial()
	}
	settings := next.Of
	if settings == nil {
		return nil
	}
	w := &watch{watcher: l.watcher, warnAt: settings.WarnAt, shadow: settings.Shadow, asked: next.family.ByCall()}
	if p := settings.Penalty; p.Refusals > 0 {
		w.rule = &penalty.Rule{Refusals: int64(p.Refusals), Within: p.Within, For: p.For, Max: p.Max, Forget: p.Forget}
		if l.refusals == nil {
			l.refusals, err = engine.New[string](engine.Config{Name: "rald refusals", Policy: w.rule})
		}
		w.refusals = l.refusals
	}
	if settings.Candidate != nil && next.Name == settings.Name {
		w.asked = before
		if before == nil || was.family != next.family || was.Of.Candidate.String() != settings.Candidate.String() {
			live := limits.TrialConfig[string]{Live: next.family.ByCall(), Candidate: &tried{l, limitfile.Candidate(next.Name)}}
			w.asked, err = limits.NewTrial(live)
		}
	}
	if w.rule != nil || w.shadow || len(w.warnAt) > 0 || w.trial() != nil {
		next.watch = w
	}
	return err
}

// trial returns the Trial of the limit's candidate, or nil.
func (w *watch) trial() *limits.Trial[string] {
	if w == nil {
		return nil
	}
	trial, _ := w.asked.(*limits.Trial[string])
	return trial
}

var _ limits.Remote = (*limit)(nil)

// Admit implements limits.Limiter, like Hold.
func (l *limit) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	grant, err := l.Hold(ctx, limits.Call[string]{Key: key, N: n, Limit: l.Policy, Brief: true})
	return grant.Answer, err
}

// Hold implements limits.Limiter, for a call with its key and limit as the family has them.
func (l *limit) Hold(ctx context.Context, call limits.Call[string]) (grant limits.Grant, err error) {
	watch := l.watch
	if watch == nil {
		return l.family.ByCall().Hold(ctx, call)
	}
	call.NoWait = call.NoWait || watch.shadow
	if grant, err = watch.asked.Hold(ctx, call); err != nil {
		return grant, err
	}
	l.warn(call.Key, call.N, &grant.Decision)
	l.punish(ctx, &call, &grant.Answer)
	if watch.shadow && call.N >= 0 {
		if call.N > 0 && (!grant.Allowed || grant.Wait > 0) {
			l.counts.Passed.Add(1)
		}
		grant.Allowed, grant.Wait, grant.RetryAfter = true, 0, 0
	}
	return grant, nil
}

// Look returns the answer that Hold would give now without waiting, for limits.AskAll.
func (l *limit) Look(call limits.Call[string]) (answer limits.Answer, ok bool) {
	if limiter := families.EngineOf(l.family); limiter != nil && !l.shadow {
		return limiter.Look(call)
	}
	return answer, false
}

// LimitFor implements limits.Limiter.
func (l *limit) LimitFor(string) policy.Policy { return l.Policy }

// Remote implements limits.Remote.
func (l *limit) Remote() bool {
	_, there := l.family.(families.InRedis)
	return there
}

// warn warns of the shares that an admitted take of n units passed. At most Remaining and n units remained
// before it, so no passed share is missed. A limit that grants units on credit had fewer, and may warn of
// a key that was past the share.
func (l *limit) warn(key string, n int64, decision *policy.Decision) {
	if len(l.warnAt) == 0 || !decision.Allowed || n <= 0 {
		return
	}
	// A share of an outage has a lower limit.
	most := min(shape.AtOnce(l.Policy), decision.Limit)
	passed := l.warnAt.Passed(most, decision.Remaining+n, decision.Remaining)
	if passed == 0 {
		return
	}
	for _, text := range l.keys.Fresh(l.warnAt, passed, l, key, decision) {
		l.counts.Warnings.Add(1)
		l.log.Post(notice{"ral: a key has passed a share of its limit", l.Name, slog.String("warning", text.Error())})
	}
}

// punish counts a refusal by the limit, as engine.Penalty does, and blocks the key if that is one too many.
func (l *limit) punish(ctx context.Context, call *limits.Call[string], answer *limits.Answer) {
	if l.rule == nil || answer.Allowed || answer.RetryAfter == policy.Never || errors.Is(answer.Err(), limits.ErrBlocked) {
		return
	}
	if limiter := families.EngineOf(l.family); limiter != nil && limiter.Blocked(call.Key) > 0 {
		return
	}
	decision := l.refusals.TakeWith(l.rule, call.Key, 1)
	if !decision.Allowed || decision.ResetAfter == 0 {
		return
	}
	if err := l.family.Block(ctx, call.Key, decision.ResetAfter); err != nil {
		l.log.Post(notice{"ral: a key could not be blocked", l.Name, slog.Any("error", err)})
	}
}

// refunded heeds that n units came back, or that -n were charged.
func (l *limit) refunded(ctx context.Context, key string, n int64, decision *policy.Decision) {
	l.warn(key, -n, decision)
	if trial := l.trial(); trial != nil {
		trial.Candidate().(*tried).refund(ctx, key, n)
	}
}

// tried is the candidate of that name, for a limits.Trial. It is asked while Limits.calls is held, or while
// exchange waits.
type tried struct {
	limits *Limits
	name   string
}

// find returns the candidate with its key for a key of the limit.
func (t *tried) find(key string) (*limit, string) {
	one := (*t.limits.table.Load())[t.name]
	return one, one.translated(one.prefix + key)
}

func (t *tried) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	grant, err := t.Hold(ctx, limits.Call[string]{Key: key, N: n})
	return grant.Answer, err
}

func (t *tried) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	var one *limit
	one, call.Key = t.find(call.Key)
	call.Limit = one.Policy
	return one.family.ByCall().Hold(ctx, call)
}

func (t *tried) LimitFor(key string) policy.Policy {
	one, _ := t.find(key)
	return one.Policy
}

// refund gives units back. A candidate that cannot be asked is as if it did not know.
func (t *tried) refund(ctx context.Context, key string, n int64) {
	one, key := t.find(key)
	_, _ = one.family.RefundWith(ctx, one.Policy, key, n)
}
