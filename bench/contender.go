package bench

import (
	"context"
	"slices"
	"time"
)

// Contender is measured by [Run]. Reports have the fields with a name in JSON.
type Contender struct {
	Name string `json:"contender"`
	// About is one line.
	About string `json:"contender_about,omitempty"`
	// Note warns a reader of the figures, or is empty.
	Note string `json:"note,omitempty"`
	// Yardstick marks a contender that limits nothing. It is not audited.
	Yardstick Yardstick `json:"yardstick,omitempty"`
	// Promise is the rule that the limiter is audited by.
	Promise Promise `json:"promise,omitempty"`
	// Exact says that the limiter's design keeps its promise under any concurrency.
	Exact bool `json:"exact"`
	// Slow says that a call takes thousands of times as long as on the floor. Workloads with very
	// many calls for their keys leave it out.
	Slow bool `json:"-"`
	// Elsewhere says that another process does part of the work, so CPU time is incomplete.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Idles says that the limiter forgets keys idle for Setup.Idle.
	Idles bool `json:"-"`
	// For names the workloads that the contender is made for; nil means all that are not Apart.
	For []string `json:"-"`
	// Like names the contender with the same kind of call in a workload that is Apart, or is empty.
	Like string `json:"like,omitempty"`
	// Needs reports whether the contender can do a workload; nil means all.
	Needs func(Workload) bool `json:"-"`
	// New makes a limiter without keys.
	New func(Setup) (Limiter, error) `json:"-"`
	// Measure measures a round, in place of New. Workloads with DrawElsewhere need it.
	Measure func(ctx context.Context, w Workload, d time.Duration) (Measured, error) `json:"-"`
}

// Measured is the outcome of a round that a contender measured itself. Figures that it does not
// know are zero.
type Measured struct {
	Pass    Pass
	Latency Latency
	Memory  *Memory
	Audit   *Audit
	// Share is the admitted share of the most that a limit allows.
	Share float64
}

// Yardstick is the kind of a contender that limits nothing, empty for a limiter.
type Yardstick string

const (
	// YardstickFloor is the minimum for any limiter by key: see [Floor].
	YardstickFloor Yardstick = "floor"
	// YardstickMap is about the minimum for a limiter on an xsync map: see [XsyncMap].
	YardstickMap Yardstick = "map"
	// YardstickC is the minimum without a language runtime, in C.
	YardstickC Yardstick = "C"
)

// CFloorName is the name of the contender that is the YardstickC.
const CFloorName = "C floor"

// slowCalls is the most calls for the keys of a slow contender: some seconds.
const slowCalls = 100_000

func (c Contender) can(workload Workload) bool {
	if made := slices.Contains(c.For, workload.Name); made != workload.Apart || !made && len(c.For) > 0 {
		return false
	}
	if c.Slow && (workload.keyCalls() > slowCalls || workload.Memory) {
		return false
	}
	return c.Needs == nil || c.Needs(workload)
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

	// packageTime has Ral go by the clock of package time.
	packageTime bool
}

// Limiter answers calls from any number of goroutines. All functions but Ask may be nil.
type Limiter struct {
	// Ask asks for each key in order and returns how many passed. Each limiter has its own loop, to
	// call its verb directly: see [AskEach]. No call comes after Free.
	Ask func(keys []string) (passed int)
	// Prepare gets all keys before they are asked for.
	Prepare func(keys []string)
	// Settle waits until the limiter's work in the background is done, at most a second.
	Settle func()
	// Counts returns the limiter's own counters.
	Counts func() Counts
	// Spent returns the processor time of another process that works for the limiter.
	Spent func() time.Duration
	// Free frees the limiter's resources.
	Free func() error
}

// Choke reports whether the key may act now.
func (l Limiter) Choke(key string) bool { return l.Ask([]string{key}) == 1 }

// Close calls Free.
func (l Limiter) Close() error {
	if l.Free == nil {
		return nil
	}
	return l.Free()
}

func (l Limiter) spent() time.Duration {
	if l.Spent == nil {
		return 0
	}
	return l.Spent()
}

func (l Limiter) settle() {
	if l.Settle != nil {
		l.Settle()
	}
}

// AskEach asks for each key in order and returns how many passed. Inlined into a loop, it makes
// the calls of its function literal direct.
func AskEach(keys []string, choke func(key string) bool) (passed int) {
	for _, key := range keys {
		if choke(key) {
			passed++
		}
	}
	return passed
}
