package limitfile

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Changeable is a limiter with a limit that can change: an engine.Engine, or a fleet.Limiter.
type Changeable[K comparable] interface {
	limits.Limiter[K]
	SetPolicy(policy.Policy) error
	Close() error
}

// Keys says how a program counts the keys of a limit. The zero Keys is accepted.
type Keys[K comparable] struct {
	// PlanOf returns the plan of a key. Keys of a plan that the file does not have are held to the
	// limit itself. PlanOf runs in each call, and for all keys in use when a plan comes or goes. So it
	// must be fast and safe for concurrent use, and must not panic. When PlanOf begins to return another
	// plan for a key, the program should call Limiter.ChangePlan. If PlanOf is nil, no key has a plan.
	PlanOf func(key K) string
	// Config is for the engines of Engine. Its Policy, WarnAt and Penalty come from the file, and its
	// Name is the limit's. With a State.Path, each plan has a file of its own, and a candidate has none.
	Config engine.Config
	// Options are for the engines of Engine. engine.PolicyFor is refused by every change.
	Options []engine.Option[K]
}

// Engine returns a limiter in process with the limit of that name in the file. The limiter has an
// engine.Engine for the limit, and another one for each plan and for a candidate. The engines follow the
// file, and [File.Close] closes them. Engine returns an error if the file has no such limit, if the limit
// has a limiter already, or from engine.New.
func Engine[K comparable](file *File, name string, keys ...Keys[K]) (*Limiter[K], error) {
	var use Keys[K]
	if len(keys) > 0 {
		use = keys[len(keys)-1]
	}
	return With(file, name, use.PlanOf, func(part string, limit policy.Policy, l Limit) (Changeable[K], error) {
		config := use.Config
		config.Policy, config.Name = limit, part[:min(len(part), maxName)]
		switch {
		case part == l.Name+"/"+candidate:
			config.State, config.OnEvent, config.OnMisfit = engine.State{}, nil, nil
			return engine.New[K](config)
		case config.State.Path != "":
			config.State.Path += strings.ReplaceAll(strings.TrimPrefix(part, l.Name), "/plan/", ".")
		}
		config.WarnAt, config.Penalty = l.WarnAt, l.Penalty
		return engine.New(config, use.Options...)
	})
}

// With is Engine for other limiters, such as a fleet.Limiter. It calls construct for the limit, for
// each plan and for a candidate, also later when the file gets more of them. The name that construct gets
// is, for example, "per-user", "per-user/plan/gold" or "per-user/candidate". [File.Close] closes the
// limiters. construct must not call the file's methods. planOf is Keys.PlanOf.
func With[K comparable](
	file *File, name string, planOf func(key K) string,
	construct func(name string, limit policy.Policy, l Limit) (Changeable[K], error),
) (*Limiter[K], error) {
	limiter := &Limiter[K]{file: file, planOf: planOf, construct: construct, parts: map[string]*part[K]{}}
	if err := file.add(name, limiter); err != nil {
		return nil, err
	}
	return limiter, nil
}

// Limiter holds each key to a limit of a file, as the file has it now. It is a limits.Limiter, safe
// for concurrent use. A call takes no lock in addition to those of the limiters below. Calls that
// wait while the limit changes go on under the changed limit.
type Limiter[K comparable] struct {
	file      *File
	planOf    func(K) string
	construct func(string, policy.Policy, Limit) (Changeable[K], error)
	// rules has the limiters in force.
	rules atomic.Pointer[rules[K]]
	// passed counts the calls that shadow mode let pass although the limit refused or delayed them.
	passed atomic.Uint64

	// parts has the limiters by setting, guarded by File.changing. A plan that is gone keeps its part, since
	// its keys may owe units that no other plan can count.
	parts map[string]*part[K]
	// trial tries the candidate. It is nil without a candidate, and File.changing guards it.
	trial *limits.Trial[K]
}

// part is a limiter with the limit that it has now.
type part[K comparable] struct {
	Changeable[K]
	policy policy.Policy
}

// rules has the limiters that are in force at the same time. It does not change.
type rules[K comparable] struct {
	// own is a Trial if there is a candidate.
	own    limits.Limiter[K]
	plans  map[string]limits.Limiter[K]
	shadow bool
}

// ofPlan returns the limiter for the keys of a plan.
func (r *rules[K]) ofPlan(plan string) limits.Limiter[K] {
	if limiter := r.plans[plan]; limiter != nil {
		return limiter
	}
	return r.own
}

// choose returns the limiter for the key, and reports whether the limit is in shadow mode.
func (l *Limiter[K]) choose(key K) (limiter limits.Limiter[K], shadow bool) {
	rules := l.rules.Load()
	if l.planOf != nil && len(rules.plans) > 0 {
		return rules.ofPlan(l.planOf(key)), rules.shadow
	}
	return rules.own, rules.shadow
}

// Admit implements limits.Limiter. In shadow mode every call for 0 or more units is admitted at once.
func (l *Limiter[K]) Admit(ctx context.Context, key K, n int64) (limits.Answer, error) {
	limiter, shadow := l.choose(key)
	if !shadow {
		return limiter.Admit(ctx, key, n)
	}
	grant, err := l.Hold(ctx, limits.Call[K]{Key: key, N: n, Brief: true})
	return grant.Answer, err
}

// Hold implements limits.Limiter. In shadow mode every call for 0 or more units is admitted at once.
func (l *Limiter[K]) Hold(ctx context.Context, call limits.Call[K]) (limits.Grant, error) {
	limiter, shadow := l.choose(call.Key)
	call.NoWait = call.NoWait || shadow
	grant, err := limiter.Hold(ctx, call)
	if shadow && err == nil && call.N >= 0 {
		l.pass(&grant.Answer, call.N)
	}
	return grant, err
}

// pass admits a call in shadow mode, and counts it if the limit refuses or delays it.
func (l *Limiter[K]) pass(answer *limits.Answer, n int64) {
	if n > 0 && (!answer.Allowed || answer.Wait > 0) {
		l.passed.Add(1)
	}
	answer.Allowed, answer.Wait, answer.RetryAfter = true, 0, 0
}

// LimitFor implements limits.Limiter.
func (l *Limiter[K]) LimitFor(key K) policy.Policy {
	limiter, _ := l.choose(key)
	return limiter.LimitFor(key)
}

// Look returns the answer that Hold would give now without waiting, for limits.AskAll. ok is false if
// the limiter below has no Look.
func (l *Limiter[K]) Look(call limits.Call[K]) (answer limits.Answer, ok bool) {
	limiter, shadow := l.choose(call.Key)
	looker, ok := limiter.(interface {
		Look(limits.Call[K]) (limits.Answer, bool)
	})
	if ok {
		if answer, ok = looker.Look(call); ok && shadow && call.N >= 0 {
			l.pass(&answer, 0)
		}
	}
	return answer, ok
}

// Join adds a call to the calls that limits.AskAll decides together. It returns nil in shadow mode, with a
// candidate, or if the limiter below cannot decide calls together.
func (l *Limiter[K]) Join(all any, call limits.Call[K]) any {
	limiter, shadow := l.choose(call.Key)
	joiner, ok := limiter.(interface {
		Join(any, limits.Call[K]) any
	})
	if !ok || shadow {
		return nil
	}
	return joiner.Join(all, call)
}

// Remote implements limits.Remote.
func (l *Limiter[K]) Remote() bool {
	remote, ok := l.rules.Load().own.(limits.Remote)
	return ok && remote.Remote()
}

// Explain explains a key by the limit that holds for it, also in shadow mode, which it says: see limits.Explain.
func (l *Limiter[K]) Explain(ctx context.Context, key K) (limits.Explanation, error) {
	limiter, shadow := l.choose(key)
	explanation, err := limits.Explain(ctx, limiter, key)
	explanation.Shadow = shadow
	return explanation, err
}

// Limiters iterates over the limiters in force, such as engines for metrics: the limit's own and then
// the plans'. plan is "" for the limit's own.
func (l *Limiter[K]) Limiters() iter.Seq2[string, limits.Limiter[K]] {
	return func(yield func(string, limits.Limiter[K]) bool) {
		rules := l.rules.Load()
		if !yield("", live(rules.own)) {
			return
		}
		for plan, limiter := range rules.plans {
			if !yield(plan, limiter) {
				return
			}
		}
	}
}

// live returns the limiter that decides: the live limiter of a Trial, or limiter itself.
func live[K comparable](limiter limits.Limiter[K]) limits.Limiter[K] {
	if trial, ok := limiter.(*limits.Trial[K]); ok {
		return trial.Live()
	}
	return limiter
}

// Trial returns the trial of the candidate, with its counters, or nil without a candidate.
func (l *Limiter[K]) Trial() *limits.Trial[K] {
	trial, _ := l.rules.Load().own.(*limits.Trial[K])
	return trial
}

// Passed counts the calls that shadow mode has let pass although the limit refused or delayed them.
func (l *Limiter[K]) Passed() uint64 { return l.passed.Load() }

// ChangePlan makes the units that a key has used under a plan count under another plan, as if they
// were taken now. Call it once for each change, as soon as Keys.PlanOf returns the other plan. A
// plan that the file does not have stands for the limit itself.
//
// ChangePlan moves the units only if both limiters are engines, and both limits have the same kind and
// period. Otherwise the key begins anew, and still owes its units when it comes back to the first plan. Units above the
// other limit are forgotten. Units in flight stay with the first plan until they are released, and
// so does a block.
func (l *Limiter[K]) ChangePlan(key K, from, to string) {
	rules := l.rules.Load()
	if from != to && (rules.plans[from] != nil || rules.plans[to] != nil) {
		carry(live(rules.ofPlan(from)), live(rules.ofPlan(to)), key)
	}
}

// carry is ChangePlan for two different limiters.
func carry[K comparable](from, to limits.Limiter[K], key K) {
	source, ok := from.(carrier[K])
	target, canCharge := to.(carrier[K])
	if !ok || !canCharge || !follows(to.LimitFor(key), from.LimitFor(key)) {
		return
	}
	// The units are given back, since a reset would also forget units that other calls take meanwhile.
	used := source.Explain(key).Used
	if used > 0 && source.Refund(key, used).Allowed {
		before := target.Explain(key)
		target.Refund(key, -min(used, before.Of-before.Used))
	}
}

// carrier is implemented by engine.Engine. Limiters that other packages construct may lack its methods;
// the used units are then not carried to another limiter.
type carrier[K comparable] interface {
	Explain(key K) limits.Explanation
	Refund(key K, n int64) policy.Decision
}

// lister is a limiter that can list its keys, so that their used units can be carried to another limiter.
type lister[K comparable] interface {
	All() iter.Seq2[K, policy.Decision]
}

// prepare implements member. It makes the further limiters that the limit needs, and puts nothing in force.
// The error joins a *Fault for each limit that cannot change, and for each error of construct.
func (l *Limiter[K]) prepare(next *Limit) (update, error) {
	var faults []error
	if next.isShared() {
		faults = append(faults, next.fault("", "tenants share it: the function Shares has its limiter"))
	}
	fresh := map[string]*part[K]{}
	for _, entry := range next.policies() {
		present := l.parts[entry.setting]
		if present != nil && follows(entry.policy, present.policy) {
			continue
		}
		if present != nil && entry.setting != candidate {
			faults = append(faults, next.otherFamily(entry, present.policy))
			continue
		}
		limiter, err := l.construct(nameOf(next.Name, entry.setting), entry.policy, *next)
		if err == nil && shape.IsNil(limiter) {
			err = errors.New("its limiter is nil")
		}
		if err == nil {
			fresh[entry.setting] = &part[K]{limiter, entry.policy}
			err = l.file.own(fresh[entry.setting])
		}
		if field := (*policy.FieldError)(nil); errors.As(err, &field) && field.Field == "Policy" {
			err = fieldFault(err)
		}
		if err != nil {
			faults = append(faults, next.fault(entry.setting, "%w", err))
		}
	}
	return update{
		commit: func(ctx context.Context) (map[string]int, error) { return l.commit(ctx, next, fresh) },
		discard: func() (err error) {
			for _, limiter := range fresh {
				err = errors.Join(err, l.file.release(limiter))
			}
			return err
		},
	}, errors.Join(faults...)
}

// nameOf returns the name of the limiter of a setting.
func nameOf(name, setting string) string {
	if setting == "" {
		return name
	}
	return name + "/" + strings.Replace(setting, " ", "/", 1)
}

// commit puts a limit in force, with the limiters that prepare made for it. atLimit has, by setting, the
// number of keys without a unit left under each changed limit. After an error the settings without an error are
// in force, and a later commit changes the others.
func (l *Limiter[K]) commit(ctx context.Context, next *Limit, fresh map[string]*part[K]) (atLimit map[string]int, err error) {
	atLimit = map[string]int{}
	held := map[string]string{}
	defer next.held.put(held)
	old := l.parts[candidate]
	for setting, limiter := range fresh {
		l.parts[setting] = limiter
	}
	for _, entry := range next.policies() {
		changed := l.parts[entry.setting]
		if changed.policy.String() == entry.text {
			continue
		}
		if failed := changed.SetPolicy(entry.policy); failed != nil {
			held[entry.setting] = changed.policy.String()
			err = errors.Join(err, next.fault(entry.setting, "%w", fieldFault(failed)))
			continue
		}
		changed.policy = entry.policy
		if n, ok := keysAtLimit(ctx, changed.Changeable); ok {
			atLimit[entry.setting] = n
		}
	}
	if next.Candidate == nil {
		delete(l.parts, candidate)
	}
	if l.parts[candidate] != old {
		l.trial = nil
	}
	r := &rules[K]{own: l.parts[""].Changeable, plans: map[string]limits.Limiter[K]{}, shadow: next.Shadow}
	for _, plan := range next.Plans {
		r.plans[plan.Name] = l.parts[planPrefix+plan.Name].Changeable
	}
	if tried := l.parts[candidate]; tried != nil {
		if l.trial == nil {
			trial, failed := limits.NewTrial(limits.TrialConfig[K]{Live: r.own, Candidate: tried.Changeable})
			if failed != nil {
				return atLimit, errors.Join(err, next.fault(candidate, "%w", failed))
			}
			l.trial = trial
		}
		r.own = l.trial
	}
	before := l.rules.Swap(r)
	if before != nil && l.planOf != nil {
		l.resettle(ctx, before, r)
	}
	if old != nil && old != l.parts[candidate] {
		err = errors.Join(err, l.file.release(old))
	}
	return atLimit, err
}

// keysAtLimit counts the keys without a unit left. ok is false if the limiter cannot list its keys, or
// if the context ends first.
func keysAtLimit[K comparable](ctx context.Context, limiter limits.Limiter[K]) (n int, ok bool) {
	keys, ok := limiter.(lister[K])
	if !ok {
		return 0, false
	}
	for _, decision := range keys.All() {
		if ctx.Err() != nil {
			return 0, false
		}
		if decision.Remaining == 0 {
			n++
		}
	}
	return n, true
}

// resettle carries the used units of keys to the limiters that decide on these keys now, after plans came or went.
// It goes once through the keys of each plan that is gone, and of the limit itself if a plan is new.
func (l *Limiter[K]) resettle(ctx context.Context, before, rules *rules[K]) {
	left := map[string]limits.Limiter[K]{}
	for plan, limiter := range before.plans {
		if rules.plans[plan] == nil {
			left[plan] = limiter
		}
	}
	if len(left)+len(rules.plans) > len(before.plans) {
		left[""] = live(rules.own)
	}
	for plan, from := range left {
		keys, ok := from.(lister[K])
		if !ok {
			continue
		}
		for key := range keys.All() {
			if ctx.Err() != nil {
				return
			}
			if to := l.planOf(key); plan != "" || rules.plans[to] != nil {
				carry(from, live(rules.ofPlan(to)), key)
			}
		}
	}
}
