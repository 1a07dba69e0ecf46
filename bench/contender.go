package bench

import (
	"slices"
	"time"
)

// Contender is measured by [Run].
type Contender struct {
	Name  string
	About string // one line
	// Note warns a reader of the figures, or is empty.
	Note string
	// Yardstick marks a contender that limits nothing. It is not audited.
	Yardstick Yardstick
	// Promise is the rule that the limiter is audited by.
	Promise Promise
	// Exact says that the limiter's design keeps its promise under any concurrency.
	Exact bool
	// Slow says that a call takes thousands of times as long as on the floor. Workloads with very
	// many calls for their keys leave it out.
	Slow bool
	// Elsewhere says that another process does part of the work, so CPU time is incomplete.
	Elsewhere bool
	// Idles says that the limiter forgets keys idle for Setup.Idle.
	Idles bool
	// For names the workloads that the contender is made for; nil means all that are not Apart.
	For []string
	// Like names the contender with the same kind of call in a workload that is Apart, or is empty.
	Like string
	// Needs reports whether the contender can do a workload; nil means all.
	Needs func(Workload) bool
	// New makes a limiter without keys.
	New func(Setup) (Limiter, error)
}

// Yardstick is the kind of a contender that limits nothing, empty for a limiter.
type Yardstick string

const (
	// YardstickFloor is the minimum for any limiter by key: see [Floor].
	YardstickFloor Yardstick = "floor"
	// YardstickMap is about the minimum for a limiter on an xsync map: see [XsyncMap].
	YardstickMap Yardstick = "map"
)

// slowCalls is the most calls for the keys of a slow contender: some seconds.
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

// Setup describes the limiter to make.
type Setup struct {
	Limit Limit
	// Keys is the number of different keys that will be asked for.
	Keys int
	// MaxKeys is the number of keys that the limiter may keep: all, except for a full table.
	MaxKeys int
	// Idle is the time that an idle key is kept; 0 means the limiter's default.
	Idle time.Duration
	// Refuse holds the keys that a yardstick refuses.
	Refuse map[string]struct{}
}

// Limiter answers calls from any number of goroutines. It may also implement Settler and Counter.
type Limiter interface {
	// Choke reports whether the key may act now.
	Choke(key string) bool
	// ChokeAll asks for each key in order and returns how many passed. Each limiter has its own
	// loop, to call its Choke directly.
	ChokeAll(keys []string) (passed int)
	// Close frees the limiter's resources. No call comes after it.
	Close() error
}

// AskEach asks for each key in order and returns how many passed. Inlined into a ChokeAll, it makes
// the calls of its function literal direct.
func AskEach(keys []string, choke func(key string) bool) (passed int) {
	for _, key := range keys {
		if choke(key) {
			passed++
		}
	}
	return passed
}

// Settler is a Limiter that works in the background.
type Settler interface {
	// Settle waits until that work is done, at most a second.
	Settle()
}

type Counter interface {
	Counts() Counts
}

// Counts are a limiter's own counters.
type Counts struct {
	Overadmitted int64 `json:"overadmitted"` // admitted beyond the limit, by the limiter's own count
	Unavailable  int64 `json:"unavailable"`  // answered without the key's state
	Evicted      int64 `json:"evicted"`      // keys that were given up
	Forgiven     int64 `json:"forgiven"`     // evicted keys that still owed
	Restarts     int64 `json:"restarts"`     // background goroutines restarted
}

func (c *Counts) add(o Counts) {
	c.Overadmitted += o.Overadmitted
	c.Unavailable += o.Unavailable
	c.Evicted += o.Evicted
	c.Forgiven += o.Forgiven
	c.Restarts += o.Restarts
}

// preparer is a Limiter that must know its keys first.
type preparer interface {
	// prepare is told all keys before they are asked for.
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
