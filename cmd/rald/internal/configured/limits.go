package configured

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Mark begins the keys of configured limits in an engine: Mark, the limit's name, Mark, and the
// key. No other key may begin with a single Mark.
const Mark = "\x00"

// Prefix returns the prefix of a limit's keys.
func Prefix(name string) string { return Mark + name + Mark }

// IsHidden reports whether clients cannot call the limit: it is unnamed, in another file's rule.
func IsHidden(name string) bool { return strings.HasPrefix(name, "[") }

// Config configures Limits. Families are required.
type Config struct {
	// Families keep the keys.
	Families *families.Families
	// File remembers the limits over a restart, unless it is empty.
	File string
	// Log is told if a change could not be saved. The default is slog.Default().
	Log *slog.Logger
}

// Limits are the limits configured by name. New makes them. They are safe for concurrent use.
type Limits struct {
	config Config
	table  atomic.Pointer[map[string]*limit]
	*watcher

	// calls is held for reading by each call on a configured limit until it has taken, and for
	// writing while limits are exchanged: no call takes under a replaced limit.
	calls *xsync.RBMutex

	// changing is held by Set, and locked before calls.
	changing sync.Mutex
	// refusals counts refusals for penalties. It is nil before the first penalty, and guarded by changing.
	refusals *engine.Engine[string]
	// mixed has the names of limits that were changing when the last process ended: the saved states
	// have notes for their keys. Guarded by changing.
	mixed map[string]bool
}

type limit struct {
	limitfile.Named
	// watch is nil unless a setting of the limit needs each decision.
	*watch
	counts *Counts
	family families.Family
	prefix string
	// gone means that the limit was removed from the file while its keys drain.
	gone bool
	// hidden means that clients may not call it.
	hidden bool

	// from is nil unless words of its keys are being translated: then it is the limit of the keys
	// without a note in the family's Ledger.
	from atomic.Pointer[limit]

	// waits counts the calls that wait under this limit. A call is added while calls is held.
	waits sync.WaitGroup
	ended context.Context
	end   context.CancelFunc
}

func newLimit(named limitfile.Named, family families.Family) *limit {
	l := &limit{Named: named, counts: &Counts{}, family: family, prefix: Prefix(named.Name), hidden: IsHidden(named.Name)}
	l.ended, l.end = context.WithCancel(context.Background())
	return l
}

// New returns Limits with no limit in force. The first Set heeds the limits that config.File
// remembers. The error names a config.File that is unreadable.
func New(config Config) (*Limits, error) {
	if config.Families == nil {
		return nil, errors.New("configured: Families is nil: families.New makes them")
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	limits := &Limits{config: config, watcher: newWatcher(config.Log), calls: xsync.NewRBMutex(), mixed: map[string]bool{}}
	table, err := limits.remembered()
	if err != nil {
		return nil, err
	}
	limits.table.Store(&table)
	for family := range config.Families.All() {
		if here, ok := family.(families.InProcess); ok {
			here.Ledger().Each(limits.note)
		}
	}
	return limits, nil
}

// Close ends the counting of refusals, and the shares. No call may be under way. The Families stay.
func (l *Limits) Close() error {
	l.changing.Lock()
	defer l.changing.Unlock()
	var groups []*group
	for _, one := range *l.table.Load() {
		if g, ok := one.family.(*group); ok {
			groups = append(groups, g)
		}
	}
	err := closeAll(groups)
	if l.refusals != nil {
		err = errors.Join(err, l.refusals.Close())
	}
	return err
}

func (l *Limits) note(key string) {
	if name, ok := nameOf(key); ok {
		l.mixed[name] = true
	}
}

// Begin returns a Call that has found nothing yet.
func (l *Limits) Begin() Call { return Call{limits: l} }

// All iterates over the limits in force by name, also those that clients cannot call. A Key is the prefix of the
// limit's keys.
func (l *Limits) All() iter.Seq2[string, Use] {
	return func(yield func(string, Use) bool) {
		for name, one := range *l.table.Load() {
			if !one.gone && !yield(name, one.use(l, one.prefix)) {
				return
			}
		}
	}
}

// Len counts the limits in force that clients can call. A plan counts with its limit.
func (l *Limits) Len() (n int) {
	for _, one := range *l.table.Load() {
		if !one.gone && !one.IsPart() {
			n++
		}
	}
	return n
}

// Call is a call on any number of keys. From its first successful Find until End, limits do not
// change, so it must wait only for an engine. It is for a single goroutine.
type Call struct {
	limits *Limits
	token  *xsync.RToken
	holds  bool
}

// Use is a key under a limit, with its engine.
type Use struct {
	Family families.Family
	Limit  policy.Policy
	Key    string

	// Of keeps the key if the limit is configured, otherwise nil.
	Of *Limits

	// by is nil if the family alone decides.
	by *limit
}

func (l *limit) use(of *Limits, key string) Use {
	use := Use{Family: l.family, Limit: l.Policy, Key: key, Of: of}
	if l.watch != nil {
		use.by = l
	}
	return use
}

// Limiter returns the limiter for calls on the key under the limit.
func (u *Use) Limiter() limits.Limiter[string] {
	if u.by != nil {
		return u.by
	}
	return u.Family.ByCall()
}

// Take takes n units, all or none, without waiting.
func (u *Use) Take(ctx context.Context, n int64) (policy.Decision, error) {
	if u.by == nil || n == 0 {
		return u.Family.TakeWith(ctx, u.Limit, u.Key, n)
	}
	grant, err := u.by.Hold(ctx, limits.Call[string]{Key: u.Key, N: n, Limit: u.Limit, NoWait: true, Brief: true})
	return grant.Decision, err
}

// Refund gives n units back, or below 0 charges -n.
func (u *Use) Refund(ctx context.Context, n int64) (policy.Decision, error) {
	decision, err := u.Family.RefundWith(ctx, u.Limit, u.Key, n)
	if u.by != nil && err == nil {
		u.by.refunded(ctx, u.Key, n, &decision)
	}
	return decision, err
}

// Explain explains a call for one unit of the key, by its limit without a candidate.
func (u *Use) Explain(ctx context.Context) (limits.Explanation, error) {
	explanation, err := u.Family.ExplainWith(ctx, u.Limit, u.Key)
	explanation.Shadow = u.by != nil && u.by.shadow
	return explanation, err
}

// Reset forgets the key's usage, and reports whether there was any.
func (u *Use) Reset(ctx context.Context) (bool, error) {
	if u.by != nil && u.by.refusals != nil {
		u.by.refusals.Reset(u.Key)
	}
	return u.Family.Reset(ctx, u.Key)
}

// Find returns the key under the named limit. ok is false if there is none.
func (c *Call) Find(name, key []byte) (use Use, ok bool) {
	one := (*c.limits.table.Load())[string(name)]
	if one != nil && !c.holds {
		c.hold()
		one = (*c.limits.table.Load())[string(name)]
	}
	if one == nil || one.gone || one.hidden {
		return use, false
	}
	return one.use(c.limits, one.translated(one.prefix+string(key))), true
}

func (c *Call) hold() { c.token, c.holds = c.limits.calls.RLock(), true }

// End ends the call, if it has found a limit.
func (c *Call) End() {
	if c.holds {
		c.holds = false
		c.limits.calls.RUnlock(c.token)
	}
}

// wait ends the call for a wait under a limit. The context ends with ctx, or if the limit changes.
// The call must then give up and call done, which reports whether the limit has changed.
func (c *Call) wait(ctx context.Context, under *limit) (_ context.Context, done func() (changed bool)) {
	defer c.End()
	under.waits.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(under.ended, cancel)
	return ctx, func() bool {
		stop()
		cancel()
		under.waits.Done()
		return under.ended.Err() != nil
	}
}

// Set replaces the limits in force, all at once. The keys' usage counts under a limit of the same
// name, which must keep its family. A removed limit is no longer found, and its keys drain. also is
// called during the exchange, when no call is under way.
//
// It returns when all keys' words are translated, by calls on their keys or by Set itself. If the
// context ends before, the limits are in force, and calls and the next Set go on, also after a
// restart. If Set fails nothing has changed. The error joins a *configfile.Error for each limit
// without an engine or of another family, or reports that the limits cannot be remembered, or that
// an earlier change cannot end.
func (l *Limits) Set(ctx context.Context, to *limitfile.File, also func()) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	defer l.release()
	if err := l.finish(ctx); err != nil {
		return fmt.Errorf("an earlier change of limits has not ended: %w", err)
	}
	old := *l.table.Load()
	binding := bindingIn(old)
	all := to.All()
	next := make(map[string]*limit, len(all))
	if err := leasedFaults(l.config.Families.Fleet(), to); err != nil {
		return err
	}
	kept, err := l.config.Families.Keep(needsOf(to)...)
	var fresh []*group
	for _, named := range all {
		name, was, family := named.Name, old[named.Name], families.Family(nil)
		if named.IsShared() {
			group, failed := l.groupFor(named, was)
			if failed != nil {
				err = errors.Join(err, named.Of.Fault("", failed))
				continue
			}
			if was == nil {
				fresh = append(fresh, group)
			} else {
				// The earlier limit holds until the next start.
				named.Policy = was.Policy
			}
			family = group
		} else {
			family, kept = kept[0], kept[1:]
		}
		switch {
		case family == nil:
			// The file is refused.
			continue
		case was != nil && !was.gone && settings(was.Named) == settings(named):
			next[name] = was
			continue
		case binding[name] && was.family != family && !strings.HasPrefix(name, limitfile.Candidate("")):
			err = errors.Join(err, named.Place.Error(fmt.Errorf("keys count under %q, of another family than %q: %s, or another name",
				was.Policy, named.Policy, shape.Followers(was.Policy, named.Policy))))
			continue
		}
		next[name] = newLimit(named, family)
		if _, here := family.(families.InProcess); here && was != nil && was.family == family && was.Policy.String() != named.Policy.String() {
			next[name].from.Store(was)
		}
		if failed := l.watch(next[name], was); failed != nil {
			err = errors.Join(err, named.Place.Error(failed))
		}
	}
	if err != nil {
		return errors.Join(err, closeAll(fresh))
	}
	for name := range binding {
		if _, isGroup := old[name].family.(*group); isGroup || next[name] != nil {
			continue
		}
		next[name] = old[name]
		if was := old[name]; !was.gone {
			next[name] = newLimit(was.Named, was.family)
			next[name].gone = true
		}
	}
	if err := l.remember(next, false); err != nil {
		return errors.Join(err, closeAll(fresh))
	}
	for name := range l.mixed {
		if one := next[name]; one != nil {
			// The limit stays as it was before the last change.
			one.from.CompareAndSwap(nil, one)
		}
	}
	l.exchange(old, next, also)
	for _, named := range all {
		if g, ok := next[named.Name].family.(*group); ok {
			g.limit.Store(&named)
		}
	}
	for name, one := range old {
		if g, ok := one.family.(*group); ok && next[name] == nil {
			if err := g.shares.Close(); err != nil {
				l.config.Log.Error("shares that are no more in the file have ended with an error", "error", err)
			}
		}
	}
	if err := l.finish(ctx); err != nil && ctx.Err() == nil {
		l.config.Log.Error("limits have changed, and a later change or a restart goes on with the debts of keys", "error", err)
	}
	return nil
}

// exchange puts a table in force while no call is under way or waits under an ending limit.
func (l *Limits) exchange(old, next map[string]*limit, also func()) {
	l.calls.Lock()
	defer l.calls.Unlock()
	for name, was := range old {
		if next[name] != was {
			was.end()
		}
	}
	for name, was := range old {
		if next[name] != was {
			was.waits.Wait()
		}
	}
	l.table.Store(&next)
	if also != nil {
		also()
	}
}
