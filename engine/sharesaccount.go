package engine

import (
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/underway"
	"github.com/ral-limiter/ral/policy"
)

// account is a word and its funnel. Takes raise the word at any time. Calls that lower it hold
// Shares.giving.
type account struct {
	word atomic.Uint64
	// returned is for underway.Log.
	returned atomic.Uint64
	limit    bucket
}

// gone is the last word of an account that has left, or was replaced. No swap replaces it.
const gone = math.MaxUint64

// take takes n units under a limit of the account's pace, and answers in decision. It fills in taken, if not nil, if
// units were taken. alive is false if the account has left: nothing was taken.
func (a *account) take(
	limit bucket, now policy.Instant, n int64, patience time.Duration, decision *policy.Decision, taken *underway.Taken,
) (alive bool) {
	for {
		returned := a.returned.Load()
		word := a.word.Load()
		if word == gone {
			return false
		}
		var next uint64
		next, *decision = limit.Take(word, now, n, patience)
		if n == 0 || !decision.Allowed {
			return true
		}
		// A successful swap hands the units to this call.
		if a.word.CompareAndSwap(word, next) {
			if taken != nil {
				*taken = underway.Taken{Before: word, After: next, At: now, N: n, Wait: decision.Wait, Returned: returned}
			}
			return true
		}
	}
}

// charge takes n units whether there is room or not, unless the account has left.
func (a *account) charge(limit bucket, now policy.Instant, n int64) {
	for {
		word := a.word.Load()
		if word == gone || a.word.CompareAndSwap(word, min(limit.(policy.Refunder).Refund(word, now, -n), policy.MaxWord)) {
			return
		}
	}
}

// occupierChange is Release or Extend of a policy.Occupier.
type occupierChange func(o policy.Occupier, word, taken uint64, now policy.Instant, n int64) (next uint64, ok bool)

// change releases or extends the units of a take, which are in use. ok is false if they no longer count, and alive is false if the
// account has left or was replaced.
func (a *account) change(change occupierChange, taken *underway.Taken, now func() policy.Instant) (ok, alive bool) {
	for {
		word := a.word.Load()
		if word == gone {
			return false, false
		}
		next, ok := change(a.limit.(policy.Occupier), word, taken.After, now(), taken.N)
		if !ok {
			return false, true
		}
		if a.word.CompareAndSwap(word, next) {
			taken.After = next
			return true, true
		}
	}
}

// replace moves an account's used units to a new account, before other calls know that. A bucket that
// holds more than the new capacity keeps it, unlike after policy.Relative: units that are forgotten
// could be taken again under the same grant. They are rounded up then.
func (a *account) replace(account *account, now policy.Instant) {
	for {
		word := a.word.Load()
		next, _ := account.limit.Carry(a.limit, word, now)
		_, look := a.limit.Take(word, now, 0, 0)
		if funnel, ok := account.limit.(policy.Refunder); ok {
			if excess := look.Limit - look.Remaining - account.limit.Limit(); excess > 0 {
				next = funnel.Refund(next, now, -excess)
			}
		}
		account.word.Store(next)
		if a.word.CompareAndSwap(word, gone) {
			return
		}
	}
}

// accounts are the accounts of tenants. Only load, open, peek, hash, keeps and from may be called
// without Shares.mu.
//
// An account leaves by swapping its word for gone first. So a call that has found it takes before that,
// and the account stays, or finds it gone and looks the tenant up again.
type accounts[K comparable] struct {
	all  *xsync.MapOf[K, *account]
	seed maphash.Seed
	// guarded means that keys may be impossible to hash.
	guarded bool
	idle    policy.Instant
	maxKeys int
	// longest is Shares.longest.
	longest time.Duration
	// choose returns a key's limit. It may be nil, as may be its result.
	choose func(K) policy.Policy
	// mu is Shares.mu.
	mu *sync.Mutex
	// reserve gives the accounts their grants. It may be nil.
	reserve *reserve
	// pinned accounts do not leave. owed is what an account has taken out of the reserve, if that is more than
	// its limit needs. In maps they need memory for few accounts.
	pinned map[*account]struct{}
	owed   map[*account]grant
	// nextDue is the first instant at which leave looks for accounts, and owedDue at which it looks at those in owed.
	nextDue, owedDue atomic.Int64
	// horizon is the last instant at which an account left. A new account takes from it at this
	// instant at the earliest: an earlier take would be of units that the account had given out.
	horizon atomic.Int64
}

func (s *accounts[K]) init(config Config, choose func(K) policy.Policy, mu *sync.Mutex, reserve *reserve) {
	s.longest = policy.MaxTimeInUse(config.Policy)
	s.all, s.seed, s.guarded = xsync.NewMapOf[K, *account](), maphash.MakeSeed(), cell.MayNotHash[K]()
	s.idle, s.maxKeys, s.reserve = policy.Instant(min(config.Idle, maxIdle)), config.MaxKeys, reserve
	s.choose, s.mu = choose, mu
	s.pinned, s.owed = map[*account]struct{}{}, map[*account]grant{}
	s.nextDue.Store(math.MaxInt64)
	s.owedDue.Store(math.MaxInt64)
}

// maxIdle keeps instants from overflowing: 36 years.
const maxIdle = time.Duration(1) << 60

// hash returns the key's hash. ok is false if the key cannot be kept.
func (s *accounts[K]) hash(key K) (hash uint64, ok bool) {
	if s.guarded {
		hash, ok = cell.GuardedHash(s.seed, key)
	} else {
		hash, ok = maphash.Comparable(s.seed, key), true
	}
	return hash, ok && key == key //nolint:gocritic // false for NaN
}

// keeps reports whether the key can be kept.
func (s *accounts[K]) keeps(key K) bool {
	_, ok := s.hash(key)
	return ok
}

// load returns the account of a key, or nil.
func (s *accounts[K]) load(key K) *account {
	if s.guarded {
		if _, ok := s.hash(key); !ok {
			return nil
		}
	}
	account, _ := s.all.Load(key)
	if account == nil || account.word.Load() == gone {
		return nil
	}
	return account
}

// open returns the account of a key, made if need be. It is nil if the key has no limit, and limited is false
// then, or if there is no room for it.
func (s *accounts[K]) open(key K, now policy.Instant) (a *account, limited bool) {
	if a = s.load(key); a != nil {
		return a, true
	}
	limit, limited := s.limitOf(key)
	if limit == nil || min(s.nextDue.Load(), s.owedDue.Load()) > int64(now) && !s.mayHaveRoom(limit) {
		return nil, limited
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a = s.load(key); a != nil {
		// Another call was first.
		return a, true
	}
	if !s.enter(limit, now) {
		return nil, true
	}
	a = &account{limit: limit}
	s.add(key, a, now)
	return a, true
}

// limitOf returns the limit that choose has for a key. It is nil if there is none, or if it cannot be used,
// and limited is true then.
func (s *accounts[K]) limitOf(key K) (limit bucket, limited bool) {
	if s.choose == nil {
		return nil, false
	}
	p := s.choose(key)
	if shape.IsNil(p) {
		return nil, false
	}
	limit, ok := bucketOf(p, s.longest)
	if !ok || !s.keeps(key) {
		return nil, true
	}
	return limit, true
}

func (s *accounts[K]) isFull() bool { return s.all.Size() >= s.maxKeys }

// mayHaveRoom reports whether there may be room for an account, if none leaves.
func (s *accounts[K]) mayHaveRoom(limit bucket) bool {
	return !s.isFull() && (s.reserve == nil || s.reserve.mayFit(grantOf(limit)))
}

// enter reports whether there is room for an account, and takes its grant out of the reserve.
func (s *accounts[K]) enter(limit bucket, now policy.Instant) bool {
	s.leave(now)
	return !s.isFull() && (s.reserve == nil || s.reserve.take(grantOf(limit)))
}

// accountWord is an account's word, read by a call at an instant.
type accountWord struct {
	// limit is nil if there is no account.
	limit bucket
	word  uint64
	now   policy.Instant
}

func (w accountWord) look(n int64) (decision policy.Decision) {
	_, decision = w.limit.Take(w.word, w.now, n, 0)
	return decision
}

// peek returns the word that open would find, without making an account.
func (s *accounts[K]) peek(key K, now policy.Instant) (w accountWord, limited bool) {
	if account := s.load(key); account != nil {
		return accountWord{account.limit, min(account.word.Load(), policy.MaxWord), s.from(account, now)}, true
	}
	if w.limit, limited = s.limitOf(key); w.limit == nil {
		return w, limited
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.enter(w.limit, now) {
		return accountWord{}, true
	}
	if s.reserve != nil {
		s.reserve.release(grantOf(w.limit))
	}
	w.now = max(now, policy.Instant(s.horizon.Load()))
	return w, true
}

// from returns the instant at which a call that began at now takes from an account.
func (s *accounts[K]) from(account *account, now policy.Instant) policy.Instant {
	if account.word.Load() == 0 {
		return max(now, policy.Instant(s.horizon.Load()))
	}
	return now
}

func (s *accounts[K]) add(key K, account *account, now policy.Instant) {
	if text, ok := any(key).(string); ok {
		// The caller's text may be a part of a long one.
		key, _ = any(strings.Clone(text)).(K)
	}
	s.all.Store(key, account)
	s.file(now)
}

// granted returns what an account has taken out of the reserve.
func (s *accounts[K]) granted(account *account) grant {
	if owed, ok := s.owed[account]; ok {
		return owed
	}
	return grantOf(account.limit)
}

// file has leave look in time for an account that may leave from now on.
func (s *accounts[K]) file(now policy.Instant) {
	s.nextDue.Store(min(s.nextDue.Load(), int64(now+s.idle)))
}

// returnOwed returns to the reserve what an account that owes nothing at now has taken out of it beyond its limit.
func (s *accounts[K]) returnOwed(account *account, now policy.Instant) {
	owed, owes := s.owed[account]
	if !owes || account.limit.FreshAt(account.word.Load()) > now {
		return
	}
	s.horizon.Store(max(s.horizon.Load(), int64(now)))
	s.reserve.release(owed)
	// The limit needs less.
	s.reserve.take(grantOf(account.limit))
	delete(s.owed, account)
}

// owedPause is the time between two looks at accounts in owed. It is longer with more than 1,000 of them.
const owedPause = policy.Instant(time.Millisecond)

// returnAllOwed is returnOwed for all accounts, except in the pause after a look.
func (s *accounts[K]) returnAllOwed(now policy.Instant) {
	if int64(now) < s.owedDue.Load() {
		return
	}
	for account := range s.owed {
		s.returnOwed(account, now)
	}
	s.owedDue.Store(math.MaxInt64)
	if n := len(s.owed); n > 0 {
		s.owedDue.Store(int64(now + max(owedPause, policy.Instant(n)*policy.Instant(time.Microsecond))))
	}
}

// leave lets accounts leave that have owed nothing for the idle time at now, and returns their grants to
// the reserve. It looks at all accounts, at about 0.1 microseconds each, so calls of it that look are apart by a
// sixteenth of the idle time, or by ten times as long as a look takes.
func (s *accounts[K]) leave(now policy.Instant) {
	s.returnAllOwed(now)
	if int64(now) < s.nextDue.Load() {
		return
	}
	next := policy.Instant(math.MaxInt64)
	s.all.Range(func(key K, account *account) bool {
		word := account.word.Load()
		fresh := account.limit.FreshAt(word)
		switch _, pinned := s.pinned[account]; {
		case pinned:
		case fresh > now-s.idle || !account.word.CompareAndSwap(word, gone):
			// A give-back may let an account owe nothing from now on.
			next = min(next, min(fresh, now)+s.idle)
		default:
			s.horizon.Store(max(s.horizon.Load(), int64(now)))
			s.all.Delete(key)
			if s.reserve != nil {
				s.reserve.release(s.granted(account))
			}
			delete(s.owed, account)
		}
		return true
	})
	apart := max(s.idle/16, policy.Instant(s.all.Size())*policy.Instant(time.Microsecond))
	s.nextDue.Store(int64(max(next, now+apart)))
}
