package bench

import "time"

// Contender is something to be measured. Give Run as many as you like; the
// ratios are taken to the one that is marked as the floor.
type Contender struct {
	Name  string
	About string // one line
	// Note is what one has to know about its figures, if anything: one line.
	Note string
	// Floor marks what is no limiter, but the least that one can cost. It is not
	// audited.
	Floor bool
	// Exact says that by its own design the limiter lets nobody have more than
	// its limit, however many ask at once. What it measures its limit by may
	// differ, as a fixed window does from a bucket: the audit is what counts.
	Exact bool
	// Slow says that a call takes thousands of times as long as on the floor. The
	// contender is left out of workloads that make very many calls for their keys.
	Slow bool
	// Elsewhere says that part of the work is done by another process, so that the
	// processor time of this one is not all that a call costs.
	Elsewhere bool
	// Idles says that the limiter forgets keys which have not been asked for
	// Setup.Idle.
	Idles bool
	// Needs tells whether the contender can do a workload; nil means all.
	Needs func(Workload) bool
	// New makes a limiter without any keys.
	New func(Setup) (Limiter, error)
}

// slowCalls is how many calls a slow contender is asked at the most, beside those
// that end with the time: some seconds.
const slowCalls = 100_000

func (c Contender) can(w Workload) bool {
	if c.Slow && (w.keyCalls() > slowCalls || w.Memory) {
		return false
	}
	return c.Needs == nil || c.Needs(w)
}

// Setup is what a limiter is made for.
type Setup struct {
	Limit Limit
	// Keys is how many different keys will be asked.
	Keys int
	// MaxKeys is how many of them the limiter may keep; as many as Keys, unless
	// the workload is about a full table.
	MaxKeys int
	// Idle is how long a key is to be kept that is not asked; 0 is for as long as
	// the limiter keeps it by default.
	Idle time.Duration
	// Refuse holds the keys that a floor, which knows no limit, answers no to.
	Refuse map[string]struct{}
}

// Limiter is what callers ask. Any number of goroutines do so at once. It may
// implement Settler and Counter as well.
type Limiter interface {
	// Choke asks whether the key may act now: true passes.
	Choke(key string) bool
	// ChokeAll asks for one key after the other and returns how many passed. The
	// loop belongs to the limiter so that its own Choke is called directly.
	ChokeAll(keys []string) (passed int)
	// Close frees what the limiter holds. Nobody asks it any more.
	Close() error
}

// Settler is a Limiter that leaves work behind for the background.
type Settler interface {
	// Settle waits until that work is done, or for a second at the most.
	Settle()
}

// Counter is a Limiter that counts what became of its calls.
type Counter interface {
	Counts() Counts
}

// Counts are a limiter's own counters.
type Counts struct {
	Overadmitted int64 `json:"overadmitted"` // let pass beyond the limit, by its own account
	Unavailable  int64 `json:"unavailable"`  // answered without the key's state
	Evicted      int64 `json:"evicted"`      // keys that were given up
	Forgiven     int64 `json:"forgiven"`     // those of them that still owed
	Restarts     int64 `json:"restarts"`     // background goroutines restarted
}

func (c *Counts) add(o Counts) {
	c.Overadmitted += o.Overadmitted
	c.Unavailable += o.Unavailable
	c.Evicted += o.Evicted
	c.Forgiven += o.Forgiven
	c.Restarts += o.Restarts
}

func settle(l Limiter) {
	if s, ok := l.(Settler); ok {
		s.Settle()
	}
}

func countsOf(l Limiter) *Counts {
	if c, ok := l.(Counter); ok {
		counts := c.Counts()
		return &counts
	}
	return nil
}
