package peers

import (
	"time"

	"github.com/RussellLuo/slidingwindow"
	"github.com/go-chi/httprate"
	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/bench"
)

// Calls returns the peers of Ral's other limits and verbs for [bench.Calls]. Each names the row of
// Ral with the same kind of call.
func Calls() []bench.Contender {
	limits := []string{bench.LimitsWorkload, bench.LimitsAuditWorkload}
	several := []string{bench.SeveralWorkload, bench.SeveralRefusedWorkload}
	return []bench.Contender{
		beside("Ral FixedWindow", longWindows(GoLimiter()), limits...),
		beside("Ral FixedWindow", Ulule(), limits...),
		beside("Ral FixedWindow", httpRateCounter(), bench.LimitsWorkload),
		beside("Ral SlidingWindow", HTTPRate(), limits...),
		beside("Ral SlidingWindow", slidingWindow(), limits...),
		beside("Ral Reserve", xtimeReserve(), bench.VerbsWorkload),
		beside("Ral Wait", xtimeWait(), bench.VerbsWorkload),
		beside("Ral Tiered", xtimeTwice(), several...),
	}
}

func beside(like string, c bench.Contender, workloads ...string) bench.Contender {
	c.Like, c.For = like, workloads
	return c
}

// longWindows gives go-limiter windows so long that each gives all of its tokens, for limits of
// more than a million a second. They refuse no call.
func longWindows(c bench.Contender) bench.Contender {
	made := c.New
	c.New = func(s bench.Setup) (bench.Limiter, error) {
		if s.Limit.Count > 1_000_000 {
			s.Limit.Count = 1
		}
		return made(s)
	}
	return c
}

// byKey keeps an L for each key in an xsync MapOf, as XTimeXsync does.
type byKey[L any] struct {
	keys *xsync.MapOf[string, L]
	make func() L
}

func newByKey[L any](make func() L) byKey[L] {
	return byKey[L]{keys: xsync.NewMapOf[string, L](), make: make}
}

func (b byKey[L]) get(key string) L {
	l, known := b.keys.Load(key)
	if !known {
		l, _ = b.keys.LoadOrStore(key, b.make())
	}
	return l
}

// slidingWindow is github.com/RussellLuo/slidingwindow with windows in memory, by key in an xsync
// MapOf, asked by Allow, as in its README. It takes the calls of the last window as evenly spread,
// and so is not exact by design.
func slidingWindow() bench.Contender {
	return bench.Contender{
		Name: "slidingwindow", About: "github.com/RussellLuo/slidingwindow, one a key in an xsync MapOf",
		Note:    "estimates a sliding window from two fixed ones",
		Promise: bench.SlidingWindow,
		New: func(s bench.Setup) (bench.Limiter, error) {
			keys := newByKey(func() *slidingwindow.Limiter {
				// Windows in memory have nothing to stop.
				l, _ := slidingwindow.NewLimiter(s.Limit.Refill(), s.Limit.Capacity, func() (slidingwindow.Window, slidingwindow.StopFunc) {
					return slidingwindow.NewLocalWindow()
				})
				return l
			})
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool { return keys.get(key).Allow() })
			})
		},
	}
}

// httpRateCounter is the counter in memory of github.com/go-chi/httprate as a fixed window: Get,
// then Increment if there is room. Two steps are not exact. Windows lie at multiples of their
// length, as httprate's do, so it takes part only where no call is refused.
func httpRateCounter() bench.Contender {
	return bench.Contender{
		Name: "httprate count", About: "github.com/go-chi/httprate, its counter in memory as a fixed window",
		Note:    "looks and counts in two steps, between which other calls may count",
		Promise: bench.FixedWindow,
		New: func(s bench.Setup) (bench.Limiter, error) {
			length, capacity := s.Limit.Refill(), whole(s.Limit.Capacity)
			counter := httprate.NewLocalLimitCounter(length)
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool {
					// A counter in memory has no errors.
					window := time.Now().UTC().Truncate(length)
					n, _, err := counter.Get(key, window, window.Add(-length))
					return err == nil && n < capacity && counter.Increment(key, window) == nil
				})
			})
		},
	}
}
