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

func wholeMicros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Take implements store.Store.
func (s *Store) Take(ctx context.Context, l *store.Limit, key string, n int64, patience time.Duration) (store.Taken, error) {
	return s.TakeOne(ctx, store.TakeAsk{Limit: l, Key: key, N: n, Patience: patience})
}

// TakeOne implements store.Store.
func (s *Store) TakeOne(ctx context.Context, ask store.TakeAsk) (taken store.Taken, err error) {
	s.TakeEach(ctx, []store.TakeAsk{ask}, func(_ int, t store.Taken, e error) { taken, err = t, e })
	return taken, err
}

// Peek implements store.Store.
func (s *Store) Peek(ctx context.Context, l *store.Limit, key string) (store.Taken, error) {
	return s.Take(ctx, l, key, 0, 0)
}

// TakeEach implements store.Store.
func (s *Store) TakeEach(ctx context.Context, asks []store.TakeAsk, reply func(i int, t store.Taken, err error)) {
	// A call that ended may still be on its way, while its caller uses the asks again.
	asks = slices.Clone(asks)
	taken, errs := make([]store.Taken, len(asks)), make([]error, len(asks))
	err := s.redis.call(ctx, func() {
		for i, a := range asks {
			taken[i], errs[i] = s.take(a)
		}
	})
	for i, a := range asks {
		switch tooLong := store.CheckKey(a.Key); {
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
func (s *Store) take(a store.TakeAsk) (store.Taken, error) {
	v := s.redis.value(a.Limit, store.Tail(a.Key))
	if err := v.fault(a.Key); err != nil {
		return store.Taken{}, err
	}
	d := s.begin()
	t := d.decide(a.Limit, a.Key, a.N, func(v *value, now policy.Instant) store.Taken { return v.take(a, now) })
	if t.Allowed {
		d.write()
	}
	return t, nil
}

// take takes the units of an ask.
func (v *value) take(a store.TakeAsk, now policy.Instant) store.Taken {
	if _, _, _, ok := a.Limit.InFlight(); ok {
		return v.units.enter(a, now)
	}
	if v.log != nil {
		d, first := v.log.take(now, a.N, a.Patience)
		return store.Taken{Decision: d, After: first, At: now}
	}
	next, d := a.Limit.Policy().Take(v.word, now, a.N, a.Patience)
	t := store.Taken{Decision: d, Before: v.word, After: next, At: now}
	v.word = next
	if a.Returns {
		v.noteTake(a.Limit, t, a.N)
	}
	return t
}

func (v *value) standing(l *store.Limit, now policy.Instant) store.Taken {
	if _, _, _, ok := l.InFlight(); ok {
		return v.units.enter(store.TakeAsk{Limit: l}, now)
	}
	if v.log != nil {
		return store.Taken{Decision: v.log.standing(now), At: now}
	}
	_, d := l.Policy().Take(v.word, now, 0, 0)
	return store.Taken{Decision: d, Before: v.word, After: v.word, At: now}
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
	for _, v := range d.values {
		*v = *d.copies[v]
	}
}

// decide has take decide on a copy of the key's value, and the key's block.
func (d *decision) decide(l *store.Limit, key string, n int64, take func(v *value, now policy.Instant) store.Taken) store.Taken {
	v := d.redis.value(l, store.Tail(key))
	if d.copies[v] == nil {
		d.copies[v] = v.clone()
		d.values = append(d.values, v)
	}
	if v.log != nil {
		d.copies[v].log.limit = v.log.limit
	}
	if _, _, _, ok := l.InFlight(); ok {
		d.copies[v].units.mark = d.redis.markFor(l, 0 < n && n <= l.Policy().Limit(), int64(d.now))
		v.units.mark = d.copies[v].units.mark
	}
	before := d.copies[v].clone()
	t := take(d.copies[v], d.now)
	_, block := l.Names(store.Tail(key))
	rule := l.Rule()
	_, look := rule.Take(d.redis.blocks[block], d.now, 0, 0)
	if left := look.ResetAfter; left > 0 {
		retry := t.RetryAfter
		if t.Allowed && n != 0 {
			t = before.standing(l, d.now)
		}
		*d.copies[v] = *before
		t.Allowed, t.Remaining, t.Wait, t.After = false, 0, 0, t.Before
		t.RetryAfter, t.ResetAfter = max(retry, left), max(t.ResetAfter, left)
		t.Block = store.Block{Refused: true, Left: left}
		return t
	}
	if t.Allowed || n == 0 || t.RetryAfter == policy.Never || t.Emptied || d.counted[block] {
		return t
	}
	d.counted[block] = true
	if rule.Refusals == 0 {
		return t
	}
	next, made := rule.Take(d.redis.blocks[block], d.now, 1, 0)
	d.redis.blocks[block] = next
	if made.ResetAfter > 0 {
		t.Block = store.Block{Made: true, Left: made.ResetAfter}
		t.RetryAfter, t.ResetAfter = max(t.RetryAfter, made.ResetAfter), max(t.ResetAfter, made.ResetAfter)
	}
	return t
}

// TakeAll implements store.Store.
func (s *Store) TakeAll(ctx context.Context, asks []store.Ask) (taken []store.Taken, err error) {
	for _, a := range asks {
		if err := store.CheckKey(a.Key); err != nil {
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
	for _, a := range asks {
		if err := s.redis.value(a.Limit, store.Tail(a.Key)).fault(a.Key); err != nil {
			return nil, err
		}
	}
	d, allowed := s.begin(), true
	taken := make([]store.Taken, len(asks))
	// sums has the units asked of each log.
	sums := map[*value]int64{}
	for i, a := range asks {
		a.Patience = 0
		taken[i] = d.decide(a.Limit, a.Key, a.N, func(v *value, now policy.Instant) store.Taken {
			if v.log != nil && a.N != 0 {
				n := a.N
				// All units must fit together.
				if n > 0 && n <= v.log.limit {
					sums[v] += n
					n = sums[v]
				}
				before := s.redis.value(a.Limit, store.Tail(a.Key)).clone()
				if t := before.take(store.TakeAsk{Limit: a.Limit, N: n}, now); !t.Allowed {
					return t
				}
				return v.take(a, now)
			}
			// The call would have to wait.
			if _, refused := a.Limit.Policy().Take(v.word, now, a.N, 0); refused.Wait > 0 {
				t := v.standing(a.Limit, now)
				t.Allowed, t.RetryAfter = false, refused.Wait
				return t
			}
			return v.take(a, now)
		})
		allowed = allowed && taken[i].Allowed
	}
	if allowed {
		d.write()
		return taken, nil
	}
	for i, a := range asks {
		if taken[i].Allowed {
			taken[i] = s.redis.value(a.Limit, store.Tail(a.Key)).standing(a.Limit, d.now)
		}
	}
	return taken, nil
}

// Refund implements store.Store.
func (s *Store) Refund(ctx context.Context, l *store.Limit, key string, n int64) (store.Taken, error) {
	return s.change(ctx, l, key, func(v *value, now policy.Instant) {
		before := v.word
		if v.refund(l, now, n); v.word != before {
			v.noteReturn(l, before, now, n)
		}
	})
}

func (v *value) refund(l *store.Limit, now policy.Instant, n int64) {
	if v.log != nil {
		v.log.refund(now, n)
		return
	}
	v.word = l.Policy().(policy.Refunder).Refund(v.word, now, n)
}

func (v *value) excess(l *store.Limit, now policy.Instant, units int64) int64 {
	if v.log != nil {
		return min(max(v.log.counting(max(logNow(now), v.log.newest()))-l.Policy().Limit(), 0), units)
	}
	return store.Excess(l.Policy(), v.word, now, units)
}

// forgetVoid forgets a word that means nothing.
func (v *value) forgetVoid(l *store.Limit, now policy.Instant) {
	if v.log == nil && v.units.ends == nil && l.Policy().FreshAt(v.word) <= max(now, 0) {
		v.word = 0
	}
}

// Keep implements store.Store.
func (s *Store) Keep(ctx context.Context, l *store.Limit, key string, undo store.Taken, n, kept int64) (store.Taken, error) {
	kept = max(kept, 0)
	if n <= kept || undo.After == 0 {
		return s.Peek(ctx, l, key)
	}
	exact := false
	t, err := s.change(ctx, l, key, func(v *value, now policy.Instant) {
		if v.log != nil {
			v.log.remove(undo.After+uint64(kept), undo.After+uint64(n)-1)
			return
		}
		before := v.word
		exact = v.again(l, undo, n, kept)
		if !exact {
			v.word = wordKept(l.Policy(), v.word, now, undo, n, kept)
			exact = before == undo.After
			if !exact && v.word != before {
				v.noteReturn(l, before, now, 1)
			}
		}
	})
	t.Exact = exact
	return t, err
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, l *store.Limit, key string, undo store.Taken, n int64) (store.Taken, error) {
	return s.Keep(ctx, l, key, undo, n, 0)
}

func (s *Store) change(ctx context.Context, l *store.Limit, key string, change func(v *value, now policy.Instant)) (t store.Taken, err error) {
	if err := store.CheckKey(key); err != nil {
		return t, err
	}
	failed := s.redis.call(ctx, func() {
		v := s.redis.value(l, store.Tail(key))
		if err = v.fault(key); err != nil {
			return
		}
		now, before := s.now(), v.word
		change(v, now)
		t = v.standing(l, now)
		t.Before = before
		v.forgetNotes()
		v.forgetVoid(l, now)
	})
	if failed != nil {
		return store.Taken{}, failed
	}
	return t, err
}

// wordKept returns the word after a take of n units gave all back except kept.
func wordKept(p policy.Policy, word uint64, now policy.Instant, undo store.Taken, n, kept int64) uint64 {
	refunder := p.(policy.Refunder)
	sooner, d := p.Take(undo.Before, undo.At, kept, math.MaxInt64)
	switch {
	case undo.After != word:
		return min(refunder.Cancel(word, undo.After, undo.At, now, n-kept, math.MaxInt64), without(p, word, undo, now, n-kept))
	case kept == 0:
		sooner = undo.Before
	case !d.Allowed || d.Wait != undo.Wait:
		return refunder.Cancel(word, undo.After, undo.At, now, n-kept, 0)
	}
	if restorer, ok := p.(policy.Restorer); ok && undo.Wait == 0 {
		return restorer.Restore(word, sooner, undo.At)
	}
	return sooner
}

// without is the word after a return of units behind later calls: units x interval - age come back,
// if no call can still be waiting.
func without(p policy.Policy, word uint64, undo store.Taken, now policy.Instant, units int64) uint64 {
	s := p.(shape.Shaped).Shape()
	tick := func(at policy.Instant) *big.Int {
		return new(big.Int).SetUint64(uint64(min(max(at, 0), policy.Instant(s.End))) * 16)
	}
	level := new(big.Int).Sub(new(big.Int).SetUint64(word), tick(now))
	switch depth := new(big.Int).SetUint64(s.Depth); {
	case s.Kind == shape.Funnel && level.Cmp(depth) <= 0:
	case s.Kind == shape.Bursty && level.Cmp(depth.Add(depth, new(big.Int).SetUint64(s.Interval))) <= 0:
	default:
		return word
	}
	filled := new(big.Int).Mul(big.NewInt(units), new(big.Int).SetUint64(s.Interval))
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
	if first := new(big.Int).SetUint64(16 + s.Depth); s.Kind == shape.Bursty && first.Cmp(empty) > 0 {
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
func (s *Store) ChargeEach(ctx context.Context, l *store.Limit, debts []store.Debt) []error {
	errs := make([]error, len(debts))
	failed := s.redis.call(ctx, func() {
		now := s.now()
		for i, d := range debts {
			v := s.redis.value(l, d.Tail)
			if errs[i] = v.fault(d.Tail); errs[i] == nil {
				v.refund(l, now, -d.Units)
				debts[i].Excess = v.excess(l, now, d.Units)
				v.forgetVoid(l, now)
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
func (s *Store) Delete(ctx context.Context, l *store.Limit, key string) (there bool, err error) {
	if err := store.CheckKey(key); err != nil {
		return false, err
	}
	err = s.redis.call(ctx, func() {
		block := s.blocks + store.Tail(key)
		there = s.redis.blocks[block] != 0
		delete(s.redis.blocks, block)
		if l == nil {
			return
		}
		v := s.redis.value(l, store.Tail(key))
		there = there || v.word != 0 || v.foreign != "" || len(v.units.ends) > 0 || v.log != nil && len(v.log.units) > 0
		v.word, v.foreign, v.units.ends = 0, "", nil
		if v.log != nil {
			v.log.units = nil
		}
	})
	return there && err == nil, err
}

// Block implements store.Store.
func (s *Store) Block(ctx context.Context, key string, d time.Duration) (b store.Standing, err error) {
	if err := store.CheckKey(key); err != nil {
		return b, err
	}
	err = s.redis.call(ctx, func() {
		block := s.blocks + store.Tail(key)
		b.At = s.now()
		if d > 0 {
			next, did := penalty.Lock{Rule: &s.rule, For: wholeMicros(d)}.Take(s.redis.blocks[block], b.At, 1, 0)
			if b.TooLate = !did.Allowed; did.Allowed {
				s.redis.blocks[block] = next
			}
		}
		_, look := s.rule.Take(s.redis.blocks[block], b.At, 0, 0)
		b.Left = look.ResetAfter
	})
	if err != nil {
		return store.Standing{}, err
	}
	return b, nil
}

// Lease implements store.Store.
func (s *Store) Lease(ctx context.Context, asks []store.LeaseAsk) []store.LeaseReply {
	replies := make([]store.LeaseReply, len(asks))
	failed := s.redis.call(ctx, func() {
		for i, a := range asks {
			if store.CheckKey(a.Key) == nil {
				replies[i] = s.lease(a)
			}
		}
	})
	for i, a := range asks {
		if err := store.CheckKey(a.Key); err != nil {
			replies[i] = store.LeaseReply{Err: err}
		} else if failed != nil {
			replies[i] = store.LeaseReply{Err: failed}
		}
	}
	return replies
}

func (s *Store) lease(a store.LeaseAsk) (r store.LeaseReply) {
	v := s.redis.value(a.Limit, store.Tail(a.Key))
	if err := v.fault(a.Key); err != nil {
		return store.LeaseReply{Err: err}
	}
	_, d := a.Limit.Policy().Take(v.word, s.now(), 0, 0)
	r.Granted = min(d.Remaining, a.Most, a.Limit.Policy().Limit())
	n := r.Granted
	_, block := a.Limit.Names(store.Tail(a.Key))
	_, look := s.rule.Take(s.redis.blocks[block], s.now(), 0, 0)
	if r.Granted < a.Need || look.ResetAfter > 0 {
		r.Granted, n = 0, a.Need
	}
	r.Taken, r.Err = s.take(store.TakeAsk{Limit: a.Limit, Key: a.Key, N: n})
	return r
}

// maxRewrites bounds how often a word that others change meanwhile is rewritten.
const maxRewrites = 4

// RewriteAll implements store.Store.
func (s *Store) RewriteAll(ctx context.Context, l *store.Limit, all []store.Rewrite, within time.Duration) (first error) {
	if _, isLog := l.Policy().(*slidinglog.Log); isLog {
		return &policy.FieldError{Of: "store.RewriteAll", Field: "Limit", Value: l.Policy(), Want: "a limit that has words"}
	}
	for _, r := range all {
		if err := s.rewrite(ctx, l, r, within); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *Store) rewrite(ctx context.Context, l *store.Limit, r store.Rewrite, within time.Duration) (err error) {
	for range maxRewrites {
		var word, next uint64
		var now policy.Instant
		if failed := s.redis.call(ctx, func() {
			v := s.redis.value(l, r.Tail)
			err, word, now = v.fault(r.Tail), v.word, s.now()
		}); failed != nil || err != nil {
			return errors.Join(failed, err)
		}
		if next = r.Next(word, now); next == word {
			return nil
		}
		done := false
		if failed := s.redis.call(ctx, func() {
			v := s.redis.value(l, r.Tail)
			if done = v.word == word && s.now() <= now+policy.Instant(within); done {
				v.word = next
				v.forgetVoid(l, now)
			}
		}); failed != nil || done {
			return failed
		}
	}
	return fmt.Errorf("%w (key %s)", store.ErrContended, store.Fingerprint(r.Tail))
}

// Check implements store.Store.
func (s *Store) Check(ctx context.Context, _ time.Duration) error {
	return s.redis.call(ctx, func() {})
}

// Slots implements store.Store: a single Redis has none.
func (s *Store) Slots(context.Context) ([]store.SlotRange, error) { return nil, nil }

// Probe implements store.Store.
func (s *Store) Probe(ctx context.Context, _ string) error { return s.redis.call(ctx, func() {}) }
