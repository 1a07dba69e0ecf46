package share

import (
	"hash/maphash"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share/part"
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
	whole atomic.Pointer[part.Whole]
	name  func(key string) string
	begun time.Time
	// base is the instant of begun.
	base policy.Instant
	// full is Config.Full.
	full bool
	// id gives the order of locks.
	id   uint64
	hash hasher

	// dividing is held to divide.
	dividing sync.Mutex
	servers  atomic.Int64
	// heard is the instant of Redis's last answer, or 0. clockOffset is Redis's clock minus this
	// server's at that answer, in nanoseconds.
	heard, clockOffset atomic.Int64
	// noted reports whether units were taken since Owed last began.
	noted atomic.Bool
	// changed reports whether Save has something new.
	changed atomic.Bool
	lapsed  atomic.Uint64
	shards  []shard
}

// Config configures [New].
type Config struct {
	// Policy is the whole limit.
	Policy policy.Policy
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
func New(config Config) (*Local, error) {
	if _, err := part.Of(config.Policy, max(config.Servers, 1)); err != nil {
		return nil, err
	}
	local := &Local{
		name: config.Name, full: config.Full, begun: time.Now(), id: made.Add(1), hash: hasher{maphash.MakeSeed(), maphash.MakeSeed()},
		shards: newShards(config.MaxKeys),
	}
	w := part.NewWhole(config.Policy)
	local.whole.Store(w)
	local.base = w.Start()
	if config.Servers > 0 {
		if err := local.Serve(config.Servers); err != nil {
			return nil, err
		}
	}
	return local, nil
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
	if err := l.divide(l.whole.Load(), servers); err != nil {
		return err
	}
	l.servers.Store(int64(servers))
	return nil
}

// SetPolicy divides another limit of the same family. Used units still count, as in Serve.
func (l *Local) SetPolicy(limit policy.Policy) error {
	if _, err := part.Of(limit, 1); err != nil {
		return err
	}
	l.dividing.Lock()
	defer l.dividing.Unlock()
	whole := part.NewWhole(limit)
	l.whole.Store(whole)
	l.change()
	if servers := l.Servers(); servers > 0 {
		return l.divide(whole, servers)
	}
	return nil
}

// divide sets the part of all shards. The caller holds dividing.
func (l *Local) divide(w *part.Whole, servers int) error {
	own, err := part.New(w, servers, l.begun.Add(-time.Duration(l.base)))
	if err != nil {
		return err
	}
	now := l.now()
	for i := range l.shards {
		l.lapsed.Add(uint64(l.shards[i].divide(own, now)))
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
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	shard.learn(hash, known{word, instant})
}

// LearnLate is Learn for an old answer: it says nothing of Redis's clock, and newer words stay.
func (l *Local) LearnLate(key string, word uint64, instant policy.Instant) {
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	if old, there := shard.known[hash]; !there || instant >= old.instant {
		shard.learn(hash, known{word, instant})
	}
}

// Word returns the word of a key with used units. A log has no word in Redis.
func (l *Local) Word(used int64, at policy.Instant) uint64 {
	return l.whole.Load().Word(used, at)
}

// Take takes n units of the share, which can be given back.
func (l *Local) Take(key string, n int64, patience time.Duration) Reservation {
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	return l.take(shard, hash, key, n, patience)
}

// Peek returns the decision of a Take of n units without patience. It takes nothing.
func (l *Local) Peek(key string, n int64) policy.Decision {
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	reservation, _, _ := l.decide(shard, hash, n, 0)
	return reservation.Decision
}

// lock returns a key's hash, and its shard locked.
func (l *Local) lock(key string) (hash, *shard) {
	hash := l.hashOf(key)
	return hash, l.lockOf(hash)
}

func (l *Local) lockOf(hash hash) *shard {
	shard := &l.shards[l.index(hash)]
	shard.mu.Lock()
	return shard
}

func (l *Local) hashOf(key string) hash { return l.hash.sum(l.name(key)) }

func (l *Local) index(hash hash) int { return int(hash.low % uint64(len(l.shards))) }

func (l *Local) take(shard *shard, hash hash, key string, n int64, patience time.Duration) Reservation {
	reservation, entry, there := l.decide(shard, hash, n, patience)
	if reservation.Allowed && n != 0 {
		l.put(shard, hash, entry, there, key)
	}
	return reservation
}

// decide decides a take. entry is the key's entry after it, and there reports whether the table has an
// entry. The shard is locked.
func (l *Local) decide(shard *shard, hash hash, n int64, patience time.Duration) (reservation Reservation, entry entry, there bool) {
	if shard.part == nil {
		reservation.Decision = policy.Decision{Limit: l.whole.Load().Policy.Limit(), Allowed: n == 0, RetryAfter: never(n)}
		return reservation, entry, false
	}
	now := l.now()
	entry, there = l.entry(shard, hash, n, now)
	reservation = Reservation{local: l, hash: hash, part: shard.part}
	entry.State, reservation.Taken = shard.part.Take(entry.State, n, patience, now)
	return reservation, entry, there
}

func never(n int64) time.Duration {
	if n == 0 {
		return 0
	}
	return policy.Never
}

// put stores an entry of a key. The shard is locked.
func (l *Local) put(shard *shard, hash hash, entry entry, there bool, key string) {
	if entry.name == "" && entry.Unpaid > 0 {
		// The name may be a part of a long text.
		entry.name = strings.Clone(l.name(key))
	}
	if !there && len(shard.entries) >= shard.maxEntries {
		l.lapsed.Add(uint64(shard.evict(l.now())))
	}
	if !l.noted.Load() {
		l.noted.Store(true)
	}
	l.owe(shard, hash, entry)
}

// change records a change of debts, after it and with the shard locked.
func (l *Local) change() {
	if !l.changed.Load() {
		l.changed.Store(true)
	}
}

// entry returns a key's entry for a call of n units, and whether the table has it.
func (l *Local) entry(shard *shard, hash hash, n int64, now policy.Instant) (entry entry, there bool) {
	entry, there = shard.entries[hash]
	word, hasWord := shard.known[hash]
	entry.State = shard.part.Begin(entry.State, there, n, part.Known{
		HasWord: hasWord, Word: word.word, Said: word.instant, RedisNow: l.redisTime(now),
		Heard: policy.Instant(l.heard.Load()), Lost: shard.lost, Start: l.base, Full: l.full,
	}, now)
	return entry, there
}

// redisTime returns Redis's time at an instant of the share.
func (l *Local) redisTime(now policy.Instant) policy.Instant {
	return now + policy.Instant(l.clockOffset.Load())
}

// Refund gives n units back, or charges -n. Units that Redis counts come back to this server's
// share.
func (l *Local) Refund(key string, n int64) policy.Decision {
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	if shard.part == nil {
		return policy.Decision{Limit: l.whole.Load().Policy.Limit()}
	}
	now := l.now()
	entry, there := l.entry(shard, hash, 0, now)
	entry.State = shard.part.Refund(entry.State, n, now)
	if known, told := shard.known[hash]; told && n > 0 {
		known.word = l.whole.Load().Refund(known.word, l.redisTime(now), n, l.Servers())
		shard.known[hash] = known
	}
	l.put(shard, hash, entry, there, key)
	_, decision := shard.part.Policy.Take(entry.Word, now, 0, 0)
	return decision
}

// Reset forgets the key's use, here and from Redis, and reports whether there was any here.
func (l *Local) Reset(key string) bool {
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	now := l.now()
	entry, there := shard.entries[hash]
	delete(shard.entries, hash)
	l.change()
	shard.learn(hash, known{0, l.redisTime(now)})
	return there && shard.part.Used(entry.Word, now) > 0
}

// Debt is units to charge to Redis.
type Debt struct {
	// Name is the result of Config.Name.
	Name  string
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
			for _, debt := range debts {
				if !yield(debt) {
					l.Unpaid()
					return
				}
			}
		}
	}
}

// Paid records that a debt from Owed was charged, or may have been.
func (l *Local) Paid(debt Debt) {
	shard := l.lockOf(debt.hash)
	defer shard.mu.Unlock()
	if entry, there := shard.entries[debt.hash]; there {
		entry.Unpaid = max(entry.Unpaid-debt.Units, 0)
		l.owe(shard, debt.hash, entry)
	}
}

// owe stores an existing entry whose debt has changed. The shard is locked.
func (l *Local) owe(shard *shard, hash hash, entry entry) {
	if entry.Unpaid == 0 {
		entry.name = ""
	}
	shard.entries[hash] = entry
	l.change()
}

// Credit forgives n admitted units that count in Redis already. It returns how many were still
// owed.
func (l *Local) Credit(key string, n int64) (credited int64) {
	hash, shard := l.lock(key)
	defer shard.mu.Unlock()
	entry, there := shard.entries[hash]
	if !there {
		return 0
	}
	credited = min(max(n, 0), entry.Unpaid)
	entry.Unpaid -= credited
	l.owe(shard, hash, entry)
	return credited
}

// Unpaid makes Owed return debts again that could not be charged.
func (l *Local) Unpaid() { l.noted.Store(true) }

// Reservation is the result of a Take.
type Reservation struct {
	part.Taken
	// local is nil if nothing can have been taken.
	local *Local
	hash  hash
	part  *part.Part
}

// Basis returns what the take was decided by: this server's part of the limit, the key's word before it,
// with the withheld units, and the instant. The policy is nil if there is no part yet.
func (r *Reservation) Basis() (limit policy.Policy, word uint64, at policy.Instant) {
	if r.part == nil {
		return nil, 0, 0
	}
	return r.part.Policy, r.Taken.Basis, r.Instant
}

// Cancel is Keep of no units.
func (r *Reservation) Cancel() { r.Keep(0) }

// Keep leaves n of the units used and gives the others back, as far as later calls keep what they
// were promised. n below 0 is 0; n at or above the units gives nothing back. Call it at most once.
func (r *Reservation) Keep(n int64) {
	r.change(r.N-max(n, 0), func(own *part.Part, state part.State, now policy.Instant) part.State {
		if own != r.part {
			// The state was carried to another share.
			return state
		}
		return own.Keep(state, r.Taken, n, now)
	})
}

// Refund gives n units of the take back that the key still owes, whatever others took since: see
// Owed. It returns how many were charged already. Units of an evicted key do not come back. Call it
// at most once, and not after Keep.
func (r *Reservation) Refund(n int64) (charged int64) {
	r.change(n, func(own *part.Part, state part.State, now policy.Instant) part.State {
		owed := min(n, own.Owed(state, now))
		charged = n - owed
		return own.Refund(state, owed, now)
	})
	return charged
}

// change changes the key's state to give units back, unless the key has drained or was evicted.
func (r *Reservation) change(give int64, change func(own *part.Part, state part.State, now policy.Instant) part.State) {
	if r.local == nil || !r.Allowed || give <= 0 {
		return
	}
	shard := r.local.lockOf(r.hash)
	defer shard.mu.Unlock()
	if entry, there := shard.entries[r.hash]; there {
		entry.State = change(shard.part, entry.State, r.local.now())
		r.local.owe(shard, r.hash, entry)
	}
}
