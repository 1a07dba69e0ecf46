package share

import (
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Local decides for the keys of a limit while Redis is away. Any number of goroutines may use it.
// Make it with [New].
//
// A key's share begins from Redis's last word of the key: see Learn. The word expires when a full
// key would have drained. Without a word the share begins used up at Redis's last answer about any
// key, and comes back evenly. One call of at most the share passes all the same if Redis has ever
// answered this server, or the share begins unused if Config.Full is set.
//
// Units charged to Redis also count here until they drain by the share's own rate. So the shares of
// all servers keep the limit by themselves, however often and briefly Redis is away.
type Local struct {
	undivided atomic.Pointer[undivided]
	name      func(key string) string
	begun     time.Time
	base      policy.Instant // of begun
	full      bool           // see Config.Full
	id        uint64         // order of locks
	hash      hasher

	dividing sync.Mutex // held to divide
	servers  atomic.Int64
	// heard is the instant of Redis's last answer, or 0. clockOffset is Redis's clock minus this
	// server's at that answer, in nanoseconds.
	heard, clockOffset atomic.Int64
	noted              atomic.Bool // something was taken since Owed last began
	changed            atomic.Bool // Save has something new
	lapsed             atomic.Uint64
	shards             []shard
}

type undivided struct {
	policy policy.Policy
	shape  shape.Shape   // zero for a log
	memory time.Duration // time in which a full key drains
}

func newWhole(p policy.Policy) *undivided {
	w := &undivided{policy: p}
	if s, ok := p.(shape.Shaped); ok {
		w.shape = s.Shape()
	}
	if w.shape.Kind == shape.AlignedWindow {
		w.memory = w.shape.Per
		return w
	}
	base := firstInstant(w.shape)
	w.memory = time.Duration(p.FreshAt(charged(p, 0, base, full(p))) - base)
	return w
}

// Config configures [New].
type Config struct {
	Policy policy.Policy // the whole limit
	// Servers is how many divide it; 0: unknown, and all is refused until Serve.
	Servers int
	// MaxKeys, at least 1, bounds the keys with a share, and the remembered words of Redis.
	MaxKeys int
	// Full has keys without a word of Redis begin with the whole share, unless Redis has never
	// answered, or the table has forgotten a key with debts while a full key drains.
	Full bool
	// Name returns a short unique text for a key. It replaces the key, also in debts.
	Name func(key string) string
}

var made atomic.Uint64

// New returns a server's share, or an error if the limit has no shares.
func New(c Config) (*Local, error) {
	if _, err := Of(c.Policy, max(c.Servers, 1)); err != nil {
		return nil, err
	}
	l := &Local{
		name: c.Name, full: c.Full, begun: time.Now(), id: made.Add(1), hash: newHasher(),
		shards: newShards(c.MaxKeys),
	}
	w := newWhole(c.Policy)
	l.undivided.Store(w)
	l.base = firstInstant(w.shape)
	if c.Servers > 0 {
		if err := l.Serve(c.Servers); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// firstInstant is late enough for a window to have opened, or a store to be full.
func firstInstant(s shape.Shape) policy.Instant {
	switch s.Kind {
	case shape.Funnel, shape.Queue:
		return 1
	case shape.Bursty:
		return min(policy.Instant(s.Depth/ticks)+2, policy.Instant(s.End/2))
	}
	return policy.Instant(maxPeriod) + 1
}

// now is the share's time, not Redis's.
func (l *Local) now() policy.Instant { return l.base + policy.Instant(time.Since(l.begun)) }

// Servers is how many the limit is divided by; 0: unknown.
func (l *Local) Servers() int { return int(l.servers.Load()) }

// Lapsed counts admitted units that will not be charged, since their keys were evicted.
func (l *Local) Lapsed() uint64 { return l.lapsed.Load() }

// Serve divides the limit by another number of servers, 1 or more. Used units still count: as many
// units or as large a part of the share, whichever is more.
func (l *Local) Serve(servers int) error {
	if servers == l.Servers() {
		return nil
	}
	l.dividing.Lock()
	defer l.dividing.Unlock()
	if err := l.divide(l.undivided.Load().policy, servers); err != nil {
		return err
	}
	l.servers.Store(int64(servers))
	return nil
}

// SetPolicy divides another limit of the same family. Used units still count, as in Serve.
func (l *Local) SetPolicy(p policy.Policy) error {
	if _, err := divider(p); err != nil {
		return err
	}
	l.dividing.Lock()
	defer l.dividing.Unlock()
	l.undivided.Store(newWhole(p))
	l.change()
	if servers := l.Servers(); servers > 0 {
		return l.divide(p, servers)
	}
	return nil
}

// divide sets the part of all shards. The caller holds dividing.
func (l *Local) divide(undivided policy.Policy, servers int) error {
	p, err := Of(undivided, servers)
	if err != nil {
		return err
	}
	if a, ok := p.(policy.Anchored); ok {
		p = a.Anchor(l.begun.Add(-time.Duration(l.base)))
	}
	now := l.now()
	for i := range l.shards {
		l.lapsed.Add(uint64(l.shards[i].divide(newPart(p, servers), now)))
	}
	return nil
}

// Follow tells a new share about Redis and the servers, as another share of this server knows them.
func (l *Local) Follow(other *Local) error {
	if heard := other.heard.Load(); heard != 0 {
		ago := int64(other.now()) - heard
		l.heard.Store(int64(l.now()) - ago)
		l.clockOffset.Store(other.clockOffset.Load() + int64(other.now()-l.now()))
	}
	if servers := other.Servers(); servers > 0 {
		return l.Serve(servers)
	}
	return nil
}

// Heard records an answer of Redis at the instant at, by its clock.
func (l *Local) Heard(at policy.Instant) {
	now := l.now()
	l.clockOffset.Store(int64(at - now))
	l.heard.Store(int64(now))
}

// Learn records Redis's word of a key at the instant at, by Redis's clock.
func (l *Local) Learn(key string, word uint64, instant policy.Instant) {
	l.Heard(instant)
	h, s := l.lock(key)
	defer s.mu.Unlock()
	s.learn(h, known{word, instant})
}

// LearnLate is Learn for an old answer: it says nothing of Redis's clock, and newer words stay.
func (l *Local) LearnLate(key string, word uint64, instant policy.Instant) {
	h, s := l.lock(key)
	defer s.mu.Unlock()
	if old, there := s.known[h]; !there || instant >= old.instant {
		s.learn(h, known{word, instant})
	}
}

// Word returns the word of a key with used units. A log has no word in Redis.
func (l *Local) Word(used int64, at policy.Instant) uint64 {
	return charged(l.undivided.Load().policy, 0, at, used)
}

// Take takes n units of the share, which can be given back.
func (l *Local) Take(key string, n int64, patience time.Duration) Reservation {
	h, s := l.lock(key)
	defer s.mu.Unlock()
	return l.take(s, h, key, n, patience)
}

// Peek returns the decision of a Take of n units without patience. It takes nothing.
func (l *Local) Peek(key string, n int64) policy.Decision {
	h, s := l.lock(key)
	defer s.mu.Unlock()
	r, _, _, _ := l.decide(s, h, n, 0)
	return r.Decision
}

// lock returns a key's hash, and its shard locked.
func (l *Local) lock(key string) (hash, *shard) {
	h := l.hashOf(key)
	return h, l.lockOf(h)
}

func (l *Local) lockOf(h hash) *shard {
	s := &l.shards[l.index(h)]
	s.mu.Lock()
	return s
}

func (l *Local) hashOf(key string) hash { return l.hash.sum(l.name(key)) }

func (l *Local) index(h hash) int { return int(h.low % uint64(len(l.shards))) }

func (l *Local) take(s *shard, h hash, key string, n int64, patience time.Duration) Reservation {
	r, e, there, withheld := l.decide(s, h, n, patience)
	switch {
	case !r.Allowed || n == 0:
		return r
	case withheld > 0 && r.Wait == 0:
		r.after, r.charged = charged(r.part.policy, e.word, r.takenAt, n), true
	default:
		e.unknownSince = 0
	}
	e.unpaid += n
	e.word = r.after
	l.put(s, h, e, there, key, r.takenAt)
	return r
}

// decide decides a take without taking. e is the key's entry, and withheld its units that must not
// be used yet. The shard is locked.
func (l *Local) decide(s *shard, h hash, n int64, patience time.Duration) (r Reservation, e entry, there bool, withheld int64) {
	p := s.part
	if p == nil {
		r.Decision = policy.Decision{Limit: l.undivided.Load().policy.Limit(), Allowed: n == 0, RetryAfter: never(n)}
		return r, e, false, 0
	}
	now := l.now()
	e, there = l.entry(s, h, n, now)
	r = Reservation{local: l, hash: h, part: p, n: n, takenAt: now, before: e.word}
	withheld = p.withheld(n, e.unknownSince, l.undivided.Load().memory, now)
	r.after, r.Decision = p.policy.Take(charged(p.policy, e.word, now, withheld), now, n, patience)
	return r, e, there, withheld
}

func never(n int64) time.Duration {
	if n == 0 {
		return 0
	}
	return policy.Never
}

// put stores an entry of a key. The shard is locked.
func (l *Local) put(s *shard, h hash, e entry, there bool, key string, now policy.Instant) {
	switch {
	case e.unpaid == 0:
		e.name = ""
	case e.name == "":
		e.name = strings.Clone(l.name(key)) // which may be a part of a long text
	}
	if !there && len(s.entries) >= s.maxEntries {
		l.lapsed.Add(uint64(s.evict(now)))
	}
	s.entries[h] = e
	if !l.noted.Load() {
		l.noted.Store(true)
	}
	l.change()
}

// change records a change of debts, after it and with the shard locked.
func (l *Local) change() {
	if !l.changed.Load() {
		l.changed.Store(true)
	}
}

// entry returns a key's share for a call of n units, no less used than Redis said, and whether the
// table has it.
func (l *Local) entry(s *shard, h hash, n int64, now policy.Instant) (e entry, there bool) {
	e, there = s.entries[h]
	if e.unpaid > 0 { // drained units are not owed, whatever is added below
		e.unpaid = min(e.unpaid, s.part.used(e.word, now))
	}
	redisNow := now + policy.Instant(l.clockOffset.Load())
	k, hasWord := s.known[h]
	w := l.undivided.Load()
	hasWord = hasWord && redisNow < k.instant+policy.Instant(w.memory)
	switch {
	case hasWord:
		e.word, e.unknownSince = s.part.raise(w.policy, w.shape, e.word, k.word, redisNow, now), 0
	case there:
	case l.full && l.heard.Load() != 0 && (s.lost == 0 || now >= s.lost+policy.Instant(w.memory)):
	default:
		e.word, e.unknownSince = s.part.usedUp(n, policy.Instant(l.heard.Load()), s.lost, l.base)
	}
	return e, there
}

// Refund gives n units back, or charges -n. Units that Redis counts come back to this server's
// share.
func (l *Local) Refund(key string, n int64) policy.Decision {
	h, s := l.lock(key)
	defer s.mu.Unlock()
	p := s.part
	if p == nil {
		return policy.Decision{Limit: l.undivided.Load().policy.Limit()}
	}
	now := l.now()
	e, there := l.entry(s, h, 0, now)
	e.word = p.policy.(policy.Refunder).Refund(e.word, now, n)
	e.unpaid = max(e.unpaid-max(n, -math.MaxInt64/2), 0)
	if k, told := s.known[h]; told && n > 0 {
		at := now + policy.Instant(l.clockOffset.Load())
		k.word = l.undivided.Load().policy.(policy.Refunder).Refund(k.word, at, saturated(n, int64(l.Servers())))
		s.known[h] = k
	}
	l.put(s, h, e, there, key, now)
	_, d := p.policy.Take(e.word, now, 0, 0)
	return d
}

// Reset forgets the key's use, here and from Redis, and reports whether there was any here.
func (l *Local) Reset(key string) bool {
	h, s := l.lock(key)
	defer s.mu.Unlock()
	now := l.now()
	e, there := s.entries[h]
	delete(s.entries, h)
	l.change()
	s.learn(h, known{0, now + policy.Instant(l.clockOffset.Load())})
	return there && s.part.used(e.word, now) > 0
}

// Debt is units to charge to Redis.
type Debt struct {
	Name  string // from Config.Name
	Units int64
	hash  hash
}

// Owed returns the debts: admitted units that still count and were not Paid.
//
// A share drains no faster than the whole limit, so no unit is lost. Units that the whole has
// drained and the share has not are charged again. Units drain in the order of takes.
func (l *Local) Owed() iter.Seq[Debt] {
	return func(yield func(Debt) bool) {
		noted := l.noted.Swap(false)
		var debts []Debt
		for i := range l.shards {
			debts = l.shards[i].owed(l.now(), noted, debts[:0])
			for _, d := range debts {
				if !yield(d) {
					l.Unpaid()
					return
				}
			}
		}
	}
}

// Paid records that a debt from Owed was charged, or may have been.
func (l *Local) Paid(d Debt) {
	s := l.lockOf(d.hash)
	defer s.mu.Unlock()
	if e, there := s.entries[d.hash]; there {
		l.owe(s, d.hash, e, max(e.unpaid-d.Units, 0))
	}
}

// owe stores an existing entry with the units still to charge. The shard is locked.
func (l *Local) owe(s *shard, h hash, e entry, units int64) {
	if e.unpaid = units; units == 0 {
		e.name = ""
	}
	s.entries[h] = e
	l.change()
}

// Credit forgives n admitted units that count in Redis already. It returns how many were still
// owed.
func (l *Local) Credit(key string, n int64) (credited int64) {
	h, s := l.lock(key)
	defer s.mu.Unlock()
	e, there := s.entries[h]
	if !there {
		return 0
	}
	credited = min(max(n, 0), e.unpaid)
	l.owe(s, h, e, e.unpaid-credited)
	return credited
}

// Unpaid makes Owed return debts again that could not be charged.
func (l *Local) Unpaid() { l.noted.Store(true) }

// Reservation is the result of a Take.
type Reservation struct {
	policy.Decision
	local         *Local // nil if nothing can have been taken
	hash          hash
	part          *part
	n             int64
	takenAt       policy.Instant
	before, after uint64
	charged       bool // after is not the word of the policy's Take
}

// Cancel is Keep of no units.
func (r *Reservation) Cancel() { r.Keep(0) }

// Keep leaves n of the units used and gives the others back, as far as later calls keep what they
// were promised. n below 0 is 0; n at or above the units gives nothing back. Call it at most once.
func (r *Reservation) Keep(n int64) {
	give := r.n - max(n, 0)
	if r.local == nil || !r.Allowed || give <= 0 {
		return
	}
	s := r.local.lockOf(r.hash)
	defer s.mu.Unlock()
	e, there := s.entries[r.hash]
	if !there || s.part != r.part {
		return // it has drained, or was carried to another share
	}
	now := r.local.now()
	used := r.part.used(e.word, now)
	e.word = r.without(e.word, now, give)
	back := used - r.part.used(e.word, now)
	r.local.owe(s, r.hash, e, max(min(e.unpaid, used)-back, 0))
}

// Refund gives n units of the take back that the key still owes, whatever others took since: see
// Owed. It returns how many were charged already. Units of an evicted key do not come back. Call it
// at most once, and not after Keep.
func (r *Reservation) Refund(n int64) (charged int64) {
	if r.local == nil || !r.Allowed || n <= 0 {
		return 0
	}
	s := r.local.lockOf(r.hash)
	defer s.mu.Unlock()
	e, there := s.entries[r.hash]
	if !there {
		return 0
	}
	now := r.local.now()
	owed := min(n, e.unpaid, s.part.used(e.word, now))
	e.word = s.part.policy.(policy.Refunder).Refund(e.word, now, owed)
	r.local.owe(s, r.hash, e, e.unpaid-owed)
	return n - owed
}

// without returns a word without the last give units of the take.
func (r *Reservation) without(word uint64, now policy.Instant, give int64) uint64 {
	undone := int64(math.MaxInt64) // other returns are unknown
	if word == r.after {
		if give == r.n {
			return r.before
		}
		next, d := r.part.policy.Take(r.before, r.takenAt, r.n-give, math.MaxInt64)
		if d.Allowed && d.Wait == r.Wait && !r.charged {
			return next // as after a take of fewer units
		}
		undone = 0
	}
	return r.part.policy.(policy.Refunder).Cancel(word, r.after, r.takenAt, now, give, undone)
}

func saturated(n, times int64) int64 {
	if n > math.MaxInt64/max(times, 1) {
		return math.MaxInt64
	}
	return n * max(times, 1)
}

// full is the least number of units after which no call is admitted.
func full(p policy.Policy) int64 {
	if s, ok := p.(shape.Shaped); ok {
		if s := s.Shape(); s.Kind == shape.Bursty {
			return s.Capacity + 1 // a call passes while nothing is owed
		}
	}
	return p.Limit()
}

func charged(p policy.Policy, word uint64, now policy.Instant, n int64) uint64 {
	if n <= 0 {
		return word
	}
	return p.(policy.Refunder).Refund(word, now, -n)
}
