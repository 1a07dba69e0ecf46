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

// Local answers for the keys of a limit while Redis is away. Its methods may be called by
// any number of goroutines. The zero value is of no use: see New.
//
// A key's share begins from what Redis last said of the key: Learn records that. If Redis
// said nothing of the key, or so long ago that a key which owed all would have drained
// since, the share begins used up as of the last answer of Redis about any key, and comes
// back from there, evenly. One unit of it is left if Redis has answered this server at all.
//
// What is charged to Redis goes on counting here, until it has drained by the share's own
// rate. So the shares of all servers keep to the limit by themselves, however often Redis
// is away, and for however short a time.
type Local struct {
	whole atomic.Pointer[whole]
	name  func(key string) string
	begun time.Time
	base  policy.Instant // of begun
	id    uint64         // orders the locks of several
	hash  hasher

	dividing sync.Mutex // one at a time divides
	servers  atomic.Int64
	// heard is the instant of the last answer of Redis, 0 before the first. ahead is by
	// how much Redis's clock was ahead of this one's then, in nanoseconds.
	heard, ahead atomic.Int64
	noted        atomic.Bool // something was taken since Owed began last
	changed      atomic.Bool // what Save would write is not what it wrote last
	lapsed       atomic.Uint64
	shards       []shard
}

// whole is the limit that is divided.
type whole struct {
	policy policy.Policy
	shape  shape.Shape   // zero for a log
	memory time.Duration // how long a key that owes all takes to drain
}

func newWhole(p policy.Policy) *whole {
	w := &whole{policy: p}
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

// Config is what a share is made with.
type Config struct {
	// Policy is the whole limit.
	Policy policy.Policy
	// Servers is how many divide it; 0 if that is not known, and then all is refused until
	// Serve tells.
	Servers int
	// MaxKeys bounds how many keys have a share here, and also how many words of Redis's
	// are remembered. At least 1.
	MaxKeys int
	// Name returns what stands for a key, and for no other: what the share knows a key by,
	// and keeps of it in order to charge it. It should be short.
	Name func(key string) string
}

var made atomic.Uint64

// New returns the share of one of so many servers. The error is that the limit has no
// shares.
func New(c Config) (*Local, error) {
	if _, err := Of(c.Policy, max(c.Servers, 1)); err != nil {
		return nil, err
	}
	l := &Local{
		name: c.Name, begun: time.Now(), id: made.Add(1), hash: newHasher(),
		shards: newShards(c.MaxKeys),
	}
	w := newWhole(c.Policy)
	l.whole.Store(w)
	l.base = firstInstant(w.shape)
	if c.Servers > 0 {
		if err := l.Serve(c.Servers); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// firstInstant is late enough for a window to have opened before, or a store to be full.
func firstInstant(s shape.Shape) policy.Instant {
	switch s.Kind {
	case shape.Funnel, shape.Queue:
		return 1
	case shape.Bursty:
		return min(policy.Instant(s.Depth/ticks)+2, policy.Instant(s.End/2))
	}
	return policy.Instant(longest) + 1
}

// now is the time by which the share decides. It is not Redis's.
func (l *Local) now() policy.Instant { return l.base + policy.Instant(time.Since(l.begun)) }

// Servers is how many the limit is divided by; 0 if that is not known yet.
func (l *Local) Servers() int { return int(l.servers.Load()) }

// Lapsed counts the units that were admitted here and will not be charged: their keys made
// room for others before Redis was back.
func (l *Local) Lapsed() uint64 { return l.lapsed.Load() }

// Serve divides the limit by another number of servers from now on, 1 or more. What the
// keys have used counts on: as many units, or as large a part of the share, whichever is
// more.
func (l *Local) Serve(servers int) error {
	if servers == l.Servers() {
		return nil
	}
	l.dividing.Lock()
	defer l.dividing.Unlock()
	if err := l.divide(l.whole.Load().policy, servers); err != nil {
		return err
	}
	l.servers.Store(int64(servers))
	return nil
}

// SetPolicy divides another limit of the same family from now on. What the keys have used
// counts on, as by Serve.
func (l *Local) SetPolicy(p policy.Policy) error {
	if _, err := divider(p); err != nil {
		return err
	}
	l.dividing.Lock()
	defer l.dividing.Unlock()
	l.whole.Store(newWhole(p))
	l.change()
	if servers := l.Servers(); servers > 0 {
		return l.divide(p, servers)
	}
	return nil
}

// divide has all shards keep their part of a limit. The caller holds dividing.
func (l *Local) divide(whole policy.Policy, servers int) error {
	p, err := Of(whole, servers)
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

// Follow has this share, which is new, know what another of the same server does of Redis and
// of how many servers there are.
func (l *Local) Follow(other *Local) error {
	if heard := other.heard.Load(); heard != 0 {
		ago := int64(other.now()) - heard
		l.heard.Store(int64(l.now()) - ago)
		l.ahead.Store(other.ahead.Load() + int64(other.now()-l.now()))
	}
	if servers := other.Servers(); servers > 0 {
		return l.Serve(servers)
	}
	return nil
}

// Heard records that Redis answered at the instant at, by its clock.
func (l *Local) Heard(at policy.Instant) {
	now := l.now()
	l.ahead.Store(int64(at - now))
	l.heard.Store(int64(now))
}

// Learn records what Redis said of a key: its word at the instant at, by Redis's clock.
func (l *Local) Learn(key string, word uint64, at policy.Instant) {
	l.Heard(at)
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learn(h, known{word, at})
}

// LearnLate is Learn of a word that Redis told some time ago, which says nothing of how its
// clock goes now. It changes nothing if Redis said something of the key since.
func (l *Local) LearnLate(key string, word uint64, at policy.Instant) {
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, there := s.known[h]; !there || at >= old.at {
		s.learn(h, known{word, at})
	}
}

// Word returns the word of a key with so many units used. Redis tells no word for a log.
func (l *Local) Word(used int64, at policy.Instant) uint64 {
	return charged(l.whole.Load().policy, 0, at, used)
}

// Take asks the share for n units. What was taken can be cancelled.
func (l *Local) Take(key string, n int64, patience time.Duration) Reservation {
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.take(s, h, key, n, patience)
}

// Peek tells how the key stands.
func (l *Local) Peek(key string) policy.Decision { return l.Look(key, 0) }

// Look tells what a Take of n units without patience would be told. It takes nothing.
func (l *Local) Look(key string, n int64) policy.Decision {
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _, _, _ := l.decide(s, h, n, 0)
	return r.Decision
}

func (l *Local) find(key string) (hash, *shard) {
	h := l.hashOf(key)
	return h, &l.shards[l.index(h)]
}

func (l *Local) hashOf(key string) hash { return l.hash.of(l.name(key)) }

func (l *Local) index(h hash) int { return int(h.low % uint64(len(l.shards))) }

// take is Take for a caller that holds the shard.
func (l *Local) take(s *shard, h hash, key string, n int64, patience time.Duration) Reservation {
	r, e, there, withheld := l.decide(s, h, n, patience)
	switch {
	case !r.Allowed || n == 0:
		return r
	case withheld > 0 && r.Wait == 0:
		r.after, r.charged = charged(r.part.policy, e.word, r.at, n), true
	default:
		e.doubt = 0
	}
	e.unpaid += n
	e.word = r.after
	l.put(s, h, e, there, key, r.at)
	return r
}

// decide decides a take without taking. It returns also the key's entry, and how many units are
// withheld from it. The caller holds the shard.
func (l *Local) decide(s *shard, h hash, n int64, patience time.Duration) (r Reservation, e entry, there bool, withheld int64) {
	p := s.part
	if p == nil {
		r.Decision = policy.Decision{Limit: l.whole.Load().policy.Limit(), Allowed: n == 0, RetryAfter: never(n)}
		return r, e, false, 0
	}
	now := l.now()
	e, there = l.entry(s, h, now)
	r = Reservation{local: l, hash: h, part: p, n: n, at: now, before: e.word}
	withheld = p.withheld(e.doubt, l.whole.Load().memory, now)
	r.after, r.Decision = p.policy.Take(charged(p.policy, e.word, now, withheld), now, n, patience)
	return r, e, there, withheld
}

func never(n int64) time.Duration {
	if n == 0 {
		return 0
	}
	return policy.Never
}

// put stores an entry of a key, for a caller that holds the shard.
func (l *Local) put(s *shard, h hash, e entry, there bool, key string, now policy.Instant) {
	switch {
	case e.unpaid == 0:
		e.name = ""
	case e.name == "":
		e.name = strings.Clone(l.name(key)) // which may be a part of a long text
	}
	if !there && len(s.entries) >= s.most {
		l.lapsed.Add(uint64(s.evict(now)))
	}
	s.entries[h] = e
	if !l.noted.Load() {
		l.noted.Store(true)
	}
	l.change()
}

// change says that what is to be charged is another than before. It is called after that,
// with the shard held.
func (l *Local) change() {
	if !l.changed.Load() {
		l.changed.Store(true)
	}
}

// entry returns how a key's share stands, and whether it is in the table. It is no less
// used than Redis said.
func (l *Local) entry(s *shard, h hash, now policy.Instant) (e entry, there bool) {
	e, there = s.entries[h]
	if e.unpaid > 0 { // what has drained is not owed, whatever is added below
		e.unpaid = min(e.unpaid, s.part.used(e.word, now))
	}
	at := now + policy.Instant(l.ahead.Load())
	k, told := s.known[h]
	w := l.whole.Load()
	told = told && at < k.at+policy.Instant(w.memory)
	switch {
	case told:
		e.word, e.doubt = s.part.raise(w.policy, w.shape, e.word, k.word, at, now), 0
	case !there:
		e.word, e.doubt = s.part.usedUp(policy.Instant(l.heard.Load()), s.lost, l.base)
	}
	return e, there
}

// Refund gives n units back, or charges -n. Of units that Redis counts as much comes back
// here: they are given back to this server's share of them.
func (l *Local) Refund(key string, n int64) policy.Decision {
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.part
	if p == nil {
		return policy.Decision{Limit: l.whole.Load().policy.Limit()}
	}
	now := l.now()
	e, there := l.entry(s, h, now)
	e.word = p.policy.(policy.Refunder).Refund(e.word, now, n)
	e.unpaid = max(e.unpaid-max(n, -math.MaxInt64/2), 0)
	if k, told := s.known[h]; told && n > 0 {
		at := now + policy.Instant(l.ahead.Load())
		k.word = l.whole.Load().policy.(policy.Refunder).Refund(k.word, at, saturated(n, int64(l.Servers())))
		s.known[h] = k
	}
	l.put(s, h, e, there, key, now)
	_, d := p.policy.Take(e.word, now, 0, 0)
	return d
}

// Reset forgets what the key has used, here and by what Redis said, and reports whether
// anything was used here.
func (l *Local) Reset(key string) bool {
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := l.now()
	e, there := s.entries[h]
	delete(s.entries, h)
	l.change()
	s.learn(h, known{0, now + policy.Instant(l.ahead.Load())})
	return there && s.part.used(e.word, now) > 0
}

// Debt is what a key owes to Redis.
type Debt struct {
	Name  string // of the key, as Config.Name returned it
	Units int64
	hash  hash
}

// Owed goes through the keys of which units were admitted here that still count and were
// not Paid: what has to be charged.
//
// A share drains no faster than the whole, so that nothing is forgotten; while a part of
// the units has drained by the measure of the whole, that is charged again. Units drain in
// the order in which they were taken.
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

// Paid says that a debt, which Owed has told, was charged where it belongs, or may have
// been.
func (l *Local) Paid(d Debt) {
	s := &l.shards[l.index(d.hash)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, there := s.entries[d.hash]; there {
		l.owe(s, d.hash, e, max(e.unpaid-d.Units, 0))
	}
}

// owe stores an entry that is there, with the number of units still to be charged. The caller
// holds the shard.
func (l *Local) owe(s *shard, h hash, e entry, units int64) {
	if e.unpaid = units; units == 0 {
		e.name = ""
	}
	s.entries[h] = e
	l.change()
}

// Credit says that n units that the key was let pass here turned out to count where they
// belong, and need not be charged. It returns how many of them were still owed.
func (l *Local) Credit(key string, n int64) (credited int64) {
	h, s := l.find(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, there := s.entries[h]
	if !there {
		return 0
	}
	credited = min(max(n, 0), e.unpaid)
	l.owe(s, h, e, e.unpaid-credited)
	return credited
}

// Unpaid says that some could not be charged: Owed is to tell them again.
func (l *Local) Unpaid() { l.noted.Store(true) }

// Reservation is what a Take has taken.
type Reservation struct {
	policy.Decision
	local         *Local // nil if nothing can have been taken
	hash          hash
	part          *part
	n             int64
	at            policy.Instant
	before, after uint64
	charged       bool // after is not what the policy's Take left
}

// Cancel is Keep of no unit.
func (r *Reservation) Cancel() { r.Keep(0) }

// Keep leaves n of the units used, and gives back the others, as far as that leaves to later
// calls what they were promised. n below 0 is 0; all units, or more, give nothing back. It
// must be called once at most.
func (r *Reservation) Keep(n int64) {
	give := r.n - max(n, 0)
	if r.local == nil || !r.Allowed || give <= 0 {
		return
	}
	s := &r.local.shards[r.local.index(r.hash)]
	s.mu.Lock()
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

// Refund gives n units of the take back, whatever others took since, as far as the key owes
// them: see Owed. It returns how many it does not owe, since they were charged already. Units
// of a key that made room for others are never charged, and do not come back. It must be
// called once at most, and not after Keep.
func (r *Reservation) Refund(n int64) (charged int64) {
	if r.local == nil || !r.Allowed || n <= 0 {
		return 0
	}
	s := &r.local.shards[r.local.index(r.hash)]
	s.mu.Lock()
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

// without returns a word without the last units of the take, so many.
func (r *Reservation) without(word uint64, now policy.Instant, give int64) uint64 {
	undone := int64(math.MaxInt64) // what others gave back is not known
	if word == r.after {
		if give == r.n {
			return r.before
		}
		next, d := r.part.policy.Take(r.before, r.at, r.n-give, math.MaxInt64)
		if d.Allowed && d.Wait == r.Wait && !r.charged {
			return next // as if it had been a take of fewer units
		}
		undone = 0
	}
	return r.part.policy.(policy.Refunder).Cancel(word, r.after, r.at, now, give, undone)
}

// saturated is n * times, or the largest number.
func saturated(n, times int64) int64 {
	if n > math.MaxInt64/max(times, 1) {
		return math.MaxInt64
	}
	return n * max(times, 1)
}

// full is how many units use a limit up, so that nothing more is admitted.
func full(p policy.Policy) int64 {
	if s, ok := p.(shape.Shaped); ok {
		if s := s.Shape(); s.Kind == shape.Bursty {
			return s.Capacity + 1 // a call passes as long as nothing is owed
		}
	}
	return p.Limit()
}

// charged returns a word after n units more.
func charged(p policy.Policy, word uint64, now policy.Instant, n int64) uint64 {
	if n <= 0 {
		return word
	}
	return p.(policy.Refunder).Refund(word, now, -n)
}
