package bench

import (
	"slices"
	"time"
)

// Contender is something to be measured.
type Contender struct {
	Name  string
	About string // one line
	// Note is one line that a reader of its figures has to know, or empty.
	Note string
	// Yardstick marks what limits nothing and is there to be compared with. A
	// yardstick is not audited.
	Yardstick Yardstick
	// Promise is the rule that the limiter is audited by.
	Promise Promise
	// Exact says that by its own design the limiter keeps its promise, however many
	// goroutines ask at once. The audit finds out whether it does.
	Exact bool
	// Slow says that a call takes thousands of times as long as on the floor. The
	// contender is left out of workloads that make very many calls for their keys.
	Slow bool
	// Elsewhere says that another process does part of the work, so that the
	// processor time of this one is not all that a call costs.
	Elsewhere bool
	// Idles says that the limiter forgets keys that were not asked for in
	// Setup.Idle.
	Idles bool
	// For names the workloads that the contender is made for; nil means all that are
	// not Apart.
	For []string
	// Like names the contender that makes the same kind of call in a workload that is
	// Apart, or is empty.
	Like string
	// Needs reports whether the contender can do a workload; nil means all.
	Needs func(Workload) bool
	// New makes a limiter without any keys.
	New func(Setup) (Limiter, error)
}

// Yardstick says what a contender that limits nothing is there for. The zero value
// means a limiter.
type Yardstick string

// The yardsticks.
const (
	// YardstickFloor is what no limiter by key can do without: see [Floor].
	YardstickFloor Yardstick = "floor"
	// YardstickMap is what a limiter on an xsync map can hardly do without: see
	// [XsyncMap].
	YardstickMap Yardstick = "map"
)

// slowCalls is the most calls that a slow contender is asked for its keys: some
// seconds.
const slowCalls = 100_000

func (c Contender) can(w Workload) bool {
	if made := slices.Contains(c.For, w.Name); made != w.Apart || !made && len(c.For) > 0 {
		return false
	}
	if c.Slow && (w.keyCalls() > slowCalls || w.Memory) {
		return false
	}
	return c.Needs == nil || c.Needs(w)
}

// Setup is what a limiter is made for.
type Setup struct {
	Limit Limit
	// Keys is the number of different keys that will be asked for.
	Keys int
	// MaxKeys is the number of keys that the limiter may keep: enough for all,
	// unless the workload is about a full table.
	MaxKeys int
	// Idle is the time that a key which is not asked for is kept; 0 means the limiter's
	// default.
	Idle time.Duration
	// Refuse holds the keys that a yardstick, which knows no limit, refuses.
	Refuse map[string]struct{}
}

// Limiter is what callers ask. Any number of goroutines do so at once. It may
// implement Settler and Counter as well.
type Limiter interface {
	// Choke reports whether the key may act now.
	Choke(key string) bool
	// ChokeAll asks for one key after the other and returns how many passed. The
	// loop belongs to the limiter so that its own Choke is called directly.
	ChokeAll(keys []string) (passed int)
	// Close frees what the limiter holds. No call comes after it.
	Close() error
}

// AskEach asks for one key after the other and returns how many passed. The compiler
// inlines it into a ChokeAll, and with it a function literal that makes one call, so that
// the call is direct.
func AskEach(keys []string, choke func(key string) bool) (passed int) {
	for _, key := range keys {
		if choke(key) {
			passed++
		}
	}
	return passed
}

// Settler is a Limiter that leaves work behind for the background.
type Settler interface {
	// Settle waits until that work is done, at most a second.
	Settle()
}

// Counter is a Limiter that counts the outcomes of its calls.
type Counter interface {
	Counts() Counts
}

// Counts are a limiter's own counters.
type Counts struct {
	Overadmitted int64 `json:"overadmitted"` // admitted beyond the limit, by the limiter's own count
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

// preparer is a Limiter whose calls need its keys in a certain state.
type preparer interface {
	// prepare is told the names of all keys before they are asked for.
	prepare(keys []string)
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
