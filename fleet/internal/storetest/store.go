package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Store has the methods of a store.Store, for a single Redis.
type Store struct {
	redis   *Redis
	options store.Options
	rule    penalty.Rule
	// blocks is the prefix of the names of blocks.
	blocks string
}

func wholeMicros(duration time.Duration) time.Duration {
	return (duration + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Take implements store.Store.
func (s *Store) Take(ctx context.Context, limit *store.Limit, key string, n int64, patience time.Duration) (store.Taken, error) {
	return s.TakeOne(ctx, store.TakeAsk{Limit: limit, Key: key, N: n, Patience: patience})
}

// TakeOne implements store.Store.
func (s *Store) TakeOne(ctx context.Context, ask store.TakeAsk) (taken store.Taken, err error) {
	s.TakeEach(ctx, []store.TakeAsk{ask}, func(_ int, t store.Taken, e error) { taken, err = t, e })
	return taken, err
}

// Peek implements store.Store.
func (s *Store) Peek(ctx context.Context, limit *store.Limit, key string) (store.Taken, error) {
	return s.Take(ctx, limit, key, 0, 0)
}

// TakeEach implements store.Store.
func (s *Store) TakeEach(ctx context.Context, asks []store.TakeAsk, reply func(i int, t store.Taken, err error)) {
	// A call that ended may still be on its way, while its caller uses the asks again.
	asks = slices.Clone(asks)
	taken, errs := make([]store.Taken, len(asks)), make([]error, len(asks))
	err := s.redis.call(ctx, func() {
		for i, takeAsk := range asks {
			taken[i], errs[i] = s.take(takeAsk)
		}
	})
	for i, takeAsk := range asks {
		switch tooLong := store.CheckKey(takeAsk.Key); {
		case tooLong != nil:
			reply(i, store.Taken{}, tooLong)
		case err != nil:
			reply(i, store.Taken{}, err)
		default:
			reply(i, taken[i], errs[i])
		}
	}
}

// take decides a call. The methods below that return no error hold redis.mu.
func (s *Store) take(takeAsk store.TakeAsk) (store.Taken, error) {
	v := s.redis.value(takeAsk.Limit, store.Tail(takeAsk.Key))
	if err := v.fault(takeAsk.Key); err != nil {
		return store.Taken{}, err
	}
	decision := s.begin()
	taken := decision.decide(takeAsk.Limit, takeAsk.Key, takeAsk.N, func(value *value, now policy.Instant) store.Taken { return value.take(takeAsk, now) })
	if taken.Allowed {
		decision.write()
	}
	return taken, nil
}

// take takes the units of an ask.
func (v *value) take(takeAsk store.TakeAsk, now policy.Instant) store.Taken {
	if _, _, _, ok := takeAsk.Limit.InFlight(); ok {
		return v.units.enter(takeAsk, now)
	}
	if v.log != nil {
		decision, first := v.log.take(now, takeAsk.N, takeAsk.Patience)
		return store.Taken{Decision: decision, After: first, At: now}
	}
	next, decision := takeAsk.Limit.Policy().Take(v.word, now, takeAsk.N, takeAsk.Patience)
	taken := store.Taken{Decision: decision, Before: v.word, After: next, At: now}
	v.word = next
	if takeAsk.Returns {
		v.noteTake(takeAsk.Limit, taken, takeAsk.N)
	}
	return taken
}

func (v *value) standing(limit *store.Limit, now policy.Instant) store.Taken {
	if _, _, _, ok := limit.InFlight(); ok {
		return v.units.enter(store.TakeAsk{Limit: limit}, now)
	}
	if v.log != nil {
		return store.Taken{Decision: v.log.standing(now), At: now}
	}
	_, decision := limit.Policy().Take(v.word, now, 0, 0)
	return store.Taken{Decision: decision, Before: v.word, After: v.word, At: now}
}

func (v *value) clone() *value {
	copied := *v
	copied.notes.all = slices.Clone(v.notes.all)
	copied.units.ends = maps.Clone(v.units.ends)
	if v.log != nil {
		copied.log = v.log.clone()
	}
	return &copied
}

// decision is a call on some keys at one instant. It works on copies.
type decision struct {
	*Store
	now policy.Instant
	// values are the values in the Redis.
	values []*value
	copies map[*value]*value
	// counted has the blocks that a refusal of the key counted in.
	counted map[string]bool
}

func (s *Store) begin() *decision {
	return &decision{Store: s, now: s.now(), copies: map[*value]*value{}, counted: map[string]bool{}}
}

// write has the copies hold. Blocks hold already: refusals count in any case.
func (d *decision) write() {
	for _, value := range d.values {
		*value = *d.copies[value]
	}
}

// decide has take decide on a copy of the key's value, and the key's block.
func (d *decision) decide(limit *store.Limit, key string, n int64, take func(value *value, now policy.Instant) store.Taken) store.Taken {
	value := d.redis.value(limit, store.Tail(key))
	if d.copies[value] == nil {
		d.copies[value] = value.clone()
		d.values = append(d.values, value)
	}
	if value.log != nil {
		d.copies[value].log.limit = value.log.limit
	}
	if _, _, _, ok := limit.InFlight(); ok {
		d.copies[value].units.mark = d.redis.markFor(limit, 0 < n && n <= limit.Policy().Limit(), int64(d.now))
		value.units.mark = d.copies[value].units.mark
	}
	before := d.copies[value].clone()
	taken := take(d.copies[value], d.now)
	_, block := limit.Names(store.Tail(key))
	rule := limit.Rule()
	_, look := rule.Take(d.redis.blocks[block], d.now, 0, 0)
	if left := look.ResetAfter; left > 0 {
		retry := taken.RetryAfter
		if taken.Allowed && n != 0 {
			taken = before.standing(limit, d.now)
		}
		*d.copies[value] = *before
		taken.Allowed, taken.Remaining, taken.Wait, taken.After = false, 0, 0, taken.Before
		taken.RetryAfter, taken.ResetAfter = max(retry, left), max(taken.ResetAfter, left)
		taken.Block = store.Block{Refused: true, Left: left}
		return taken
	}
	if taken.Allowed || n == 0 || taken.RetryAfter == policy.Never || taken.Emptied || d.counted[block] {
		return taken
	}
	d.counted[block] = true
	if rule.Refusals == 0 {
		return taken
	}
	next, made := rule.Take(d.redis.blocks[block], d.now, 1, 0)
	d.redis.blocks[block] = next
	if made.ResetAfter > 0 {
		taken.Block = store.Block{Made: true, Left: made.ResetAfter}
		taken.RetryAfter, taken.ResetAfter = max(taken.RetryAfter, made.ResetAfter), max(taken.ResetAfter, made.ResetAfter)
	}
	return taken
}

// TakeAll implements store.Store.
func (s *Store) TakeAll(ctx context.Context, asks []store.Ask) (taken []store.Taken, err error) {
	for _, ask := range asks {
		if err := store.CheckKey(ask.Key); err != nil {
			return nil, err
		}
	}
	if len(asks) == 0 {
		return nil, nil
	}
	failed := s.redis.call(ctx, func() { taken, err = s.takeAll(asks) })
	if failed != nil {
		return nil, failed
	}
	return taken, err
}

func (s *Store) takeAll(asks []store.Ask) ([]store.Taken, error) {
	for _, ask := range asks {
		if err := s.redis.value(ask.Limit, store.Tail(ask.Key)).fault(ask.Key); err != nil {
			return nil, err
		}
	}
	decision, allowed := s.begin(), true
	taken := make([]store.Taken, len(asks))
	// sums has the units asked of each log.
	sums := map[*value]int64{}
	for i, takeAsk := range asks {
		takeAsk.Patience = 0
		taken[i] = decision.decide(takeAsk.Limit, takeAsk.Key, takeAsk.N, func(value *value, now policy.Instant) store.Taken {
			if value.log != nil && takeAsk.N != 0 {
				n := takeAsk.N
				// All units must fit together.
				if n > 0 && n <= value.log.limit {
					sums[value] += n
					n = sums[value]
				}
				before := s.redis.value(takeAsk.Limit, store.Tail(takeAsk.Key)).clone()
				if t := before.take(store.TakeAsk{Limit: takeAsk.Limit, N: n}, now); !t.Allowed {
					return t
				}
				return value.take(takeAsk, now)
			}
			// The call would have to wait.
			if _, refused := takeAsk.Limit.Policy().Take(value.word, now, takeAsk.N, 0); refused.Wait > 0 {
				t := value.standing(takeAsk.Limit, now)
				t.Allowed, t.RetryAfter = false, refused.Wait
				return t
			}
			return value.take(takeAsk, now)
		})
		allowed = allowed && taken[i].Allowed
	}
	if allowed {
		decision.write()
		return taken, nil
	}
	for i, ask := range asks {
		if taken[i].Allowed {
			taken[i] = s.redis.value(ask.Limit, store.Tail(ask.Key)).standing(ask.Limit, decision.now)
		}
	}
	return taken, nil
}

// Refund implements store.Store.
func (s *Store) Refund(ctx context.Context, limit *store.Limit, key string, n int64) (store.Taken, error) {
	return s.change(ctx, limit, key, func(value *value, now policy.Instant) {
		before := value.word
		if value.refund(limit, now, n); value.word != before {
			value.noteReturn(limit, before, now, n)
		}
	})
}

func (v *value) refund(limit *store.Limit, now policy.Instant, n int64) {
	if v.log != nil {
		v.log.refund(now, n)
		return
	}
	v.word = limit.Policy().(policy.Refunder).Refund(v.word, now, n)
}

func (v *value) excess(limit *store.Limit, now policy.Instant, units int64) int64 {
	if v.log != nil {
		return min(max(v.log.counting(max(logNow(now), v.log.newest()))-limit.Policy().Limit(), 0), units)
	}
	return store.Excess(limit.Policy(), v.word, now, units)
}

// forgetVoid forgets a word that means nothing.
func (v *value) forgetVoid(limit *store.Limit, now policy.Instant) {
	if v.log == nil && v.units.ends == nil && limit.Policy().FreshAt(v.word) <= max(now, 0) {
		v.word = 0
	}
}

// Keep implements store.Store.
func (s *Store) Keep(ctx context.Context, limit *store.Limit, key string, undo store.Taken, n, kept int64) (store.Taken, error) {
	kept = max(kept, 0)
	if n <= kept || undo.After == 0 {
		return s.Peek(ctx, limit, key)
	}
	exact := false
	taken, err := s.change(ctx, limit, key, func(value *value, now policy.Instant) {
		if value.log != nil {
			value.log.remove(undo.After+uint64(kept), undo.After+uint64(n)-1)
			return
		}
		before := value.word
		exact = value.again(limit, undo, n, kept)
		if !exact {
			value.word = wordKept(limit.Policy(), value.word, now, undo, n, kept)
			exact = before == undo.After
			if !exact && value.word != before {
				value.noteReturn(limit, before, now, 1)
			}
		}
	})
	taken.Exact = exact
	return taken, err
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, limit *store.Limit, key string, undo store.Taken, n int64) (store.Taken, error) {
	return s.Keep(ctx, limit, key, undo, n, 0)
}

func (s *Store) change(ctx context.Context, limit *store.Limit, key string, change func(value *value, now policy.Instant)) (taken store.Taken, err error) {
	if err := store.CheckKey(key); err != nil {
		return taken, err
	}
	failed := s.redis.call(ctx, func() {
		value := s.redis.value(limit, store.Tail(key))
		if err = value.fault(key); err != nil {
			return
		}
		now, before := s.now(), value.word
		change(value, now)
		taken = value.standing(limit, now)
		taken.Before = before
		value.forgetNotes()
		value.forgetVoid(limit, now)
	})
	if failed != nil {
		return store.Taken{}, failed
	}
	return taken, err
}

// wordKept returns the word after a take of n units gave all back except kept.
func wordKept(limit policy.Policy, word uint64, now policy.Instant, undo store.Taken, n, kept int64) uint64 {
	refunder := limit.(policy.Refunder)
	sooner, decision := limit.Take(undo.Before, undo.At, kept, math.MaxInt64)
	switch {
	case undo.After != word:
		return min(refunder.Cancel(word, undo.After, undo.At, now, n-kept, math.MaxInt64), without(limit, word, undo, now, n-kept))
	case kept == 0:
		sooner = undo.Before
	case !decision.Allowed || decision.Wait != undo.Wait:
		return refunder.Cancel(word, undo.After, undo.At, now, n-kept, 0)
	}
	if restorer, ok := limit.(policy.Restorer); ok && undo.Wait == 0 {
		return restorer.Restore(word, sooner, undo.At)
	}
	return sooner
}

// without is the word after a return of units behind later calls: units x interval - age come back,
// if no call can still be waiting.
func without(limit policy.Policy, word uint64, undo store.Taken, now policy.Instant, units int64) uint64 {
	form := limit.(shape.Shaped).Shape()
	tick := func(at policy.Instant) *big.Int {
		return new(big.Int).SetUint64(uint64(min(max(at, 0), policy.Instant(form.End))) * 16)
	}
	level := new(big.Int).Sub(new(big.Int).SetUint64(word), tick(now))
	switch depth := new(big.Int).SetUint64(form.Depth); {
	case form.Kind == shape.Funnel && level.Cmp(depth) <= 0:
	case form.Kind == shape.Bursty && level.Cmp(depth.Add(depth, new(big.Int).SetUint64(form.Interval))) <= 0:
	default:
		return word
	}
	filled := new(big.Int).Mul(big.NewInt(units), new(big.Int).SetUint64(form.Interval))
	if units <= 0 {
		return word
	}
	left := new(big.Int).Add(filled, tick(undo.At))
	if after := new(big.Int).SetUint64(undo.After); left.Cmp(after) > 0 {
		// The store cannot have filled as much.
		left = after
	}
	if left.Sub(left, tick(now)); left.Cmp(filled) > 0 {
		// The clock went back.
		left = filled
	}
	empty := tick(now)
	if first := new(big.Int).SetUint64(16 + form.Depth); form.Kind == shape.Bursty && first.Cmp(empty) > 0 {
		// No store is full before.
		empty = first
	}
	next := new(big.Int).SetUint64(word)
	if left.Sign() > 0 && next.Cmp(empty) > 0 {
		if next.Sub(next, left); next.Cmp(empty) < 0 {
			next = empty
		}
	}
	return next.Uint64()
}

// ChargeEach implements store.Store.
func (s *Store) ChargeEach(ctx context.Context, limit *store.Limit, debts []store.Debt) []error {
	errs := make([]error, len(debts))
	failed := s.redis.call(ctx, func() {
		now := s.now()
		for i, debt := range debts {
			value := s.redis.value(limit, debt.Tail)
			if errs[i] = value.fault(debt.Tail); errs[i] == nil {
				value.refund(limit, now, -debt.Units)
				debts[i].Excess = value.excess(limit, now, debt.Units)
				value.forgetVoid(limit, now)
			}
		}
	})
	if failed != nil {
		for i := range errs {
			errs[i] = failed
		}
	}
	return errs
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, limit *store.Limit, key string) (there bool, err error) {
	if err := store.CheckKey(key); err != nil {
		return false, err
	}
	err = s.redis.call(ctx, func() {
		block := s.blocks + store.Tail(key)
		there = s.redis.blocks[block] != 0
		delete(s.redis.blocks, block)
		if limit == nil {
			return
		}
		value := s.redis.value(limit, store.Tail(key))
		there = there || value.word != 0 || value.foreign != "" || len(value.units.ends) > 0 || value.log != nil && len(value.log.units) > 0
		value.word, value.foreign, value.units.ends = 0, "", nil
		if value.log != nil {
			value.log.units = nil
		}
	})
	return there && err == nil, err
}

// Block implements store.Store.
func (s *Store) Block(ctx context.Context, key string, duration time.Duration) (standing store.Standing, err error) {
	if err := store.CheckKey(key); err != nil {
		return standing, err
	}
	err = s.redis.call(ctx, func() {
		block := s.blocks + store.Tail(key)
		standing.At = s.now()
		if duration > 0 {
			next, did := penalty.Lock{Rule: &s.rule, For: wholeMicros(duration)}.Take(s.redis.blocks[block], standing.At, 1, 0)
			if standing.TooLate = !did.Allowed; did.Allowed {
				s.redis.blocks[block] = next
			}
		}
		_, look := s.rule.Take(s.redis.blocks[block], standing.At, 0, 0)
		standing.Left = look.ResetAfter
	})
	if err != nil {
		return store.Standing{}, err
	}
	return standing, nil
}

// Lease implements store.Store.
func (s *Store) Lease(ctx context.Context, asks []store.LeaseAsk) []store.LeaseReply {
	replies := make([]store.LeaseReply, len(asks))
	failed := s.redis.call(ctx, func() {
		for i, leaseAsk := range asks {
			if store.CheckKey(leaseAsk.Key) == nil {
				replies[i] = s.lease(leaseAsk)
			}
		}
	})
	for i, leaseAsk := range asks {
		if err := store.CheckKey(leaseAsk.Key); err != nil {
			replies[i] = store.LeaseReply{Err: err}
		} else if failed != nil {
			replies[i] = store.LeaseReply{Err: failed}
		}
	}
	return replies
}

func (s *Store) lease(leaseAsk store.LeaseAsk) (leaseReply store.LeaseReply) {
	value := s.redis.value(leaseAsk.Limit, store.Tail(leaseAsk.Key))
	if err := value.fault(leaseAsk.Key); err != nil {
		return store.LeaseReply{Err: err}
	}
	_, decision := leaseAsk.Limit.Policy().Take(value.word, s.now(), 0, 0)
	leaseReply.Granted = min(decision.Remaining, leaseAsk.Most, leaseAsk.Limit.Policy().Limit())
	n := leaseReply.Granted
	_, block := leaseAsk.Limit.Names(store.Tail(leaseAsk.Key))
	_, look := s.rule.Take(s.redis.blocks[block], s.now(), 0, 0)
	if leaseReply.Granted < leaseAsk.Need || look.ResetAfter > 0 {
		leaseReply.Granted, n = 0, leaseAsk.Need
	}
	leaseReply.Taken, leaseReply.Err = s.take(store.TakeAsk{Limit: leaseAsk.Limit, Key: leaseAsk.Key, N: n})
	return leaseReply
}

// maxRewrites bounds how often a word that others change meanwhile is rewritten.
const maxRewrites = 4

// RewriteAll implements store.Store.
func (s *Store) RewriteAll(ctx context.Context, limit *store.Limit, all []store.Rewrite, within time.Duration) (first error) {
	if _, isLog := limit.Policy().(*slidinglog.Log); isLog {
		return &policy.FieldError{Of: "store.RewriteAll", Field: "Limit", Value: limit.Policy(), Want: "a limit that has words"}
	}
	for _, rewrite := range all {
		if err := s.rewrite(ctx, limit, rewrite, within); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *Store) rewrite(ctx context.Context, limit *store.Limit, rewrite store.Rewrite, within time.Duration) (err error) {
	for range maxRewrites {
		var word, next uint64
		var now policy.Instant
		if failed := s.redis.call(ctx, func() {
			value := s.redis.value(limit, rewrite.Tail)
			err, word, now = value.fault(rewrite.Tail), value.word, s.now()
		}); failed != nil || err != nil {
			return errors.Join(failed, err)
		}
		if next = rewrite.Next(word, now); next == word {
			return nil
		}
		done := false
		if failed := s.redis.call(ctx, func() {
			value := s.redis.value(limit, rewrite.Tail)
			if done = value.word == word && s.now() <= now+policy.Instant(within); done {
				value.word = next
				value.forgetVoid(limit, now)
			}
		}); failed != nil || done {
			return failed
		}
	}
	return fmt.Errorf("%w (key %s)", store.ErrContended, store.Fingerprint(rewrite.Tail))
}

// Check implements store.Store.
func (s *Store) Check(ctx context.Context, _ time.Duration) error {
	return s.redis.call(ctx, func() {})
}

// Slots implements store.Store: a single Redis has none.
func (s *Store) Slots(context.Context) ([]store.SlotRange, error) { return nil, nil }

// Probe implements store.Store.
func (s *Store) Probe(ctx context.Context, _ string) error { return s.redis.call(ctx, func() {}) }
