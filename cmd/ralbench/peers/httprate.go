package peers

import (
	"net/http"

	"github.com/go-chi/httprate"

	"github.com/ral-limiter/ral/bench"
)

// HTTPRate is github.com/go-chi/httprate: NewRateLimiter with its counter in memory, asked by
// OnLimit, which its middleware calls. To measure little of HTTP, all calls share a request and a
// response, and its own option turns headers off.
//
// It keeps keys by their hash, without bound, in two maps under two locks: this window and the
// last. Older counts are forgotten when asked. The maps keep their room.
//
// It promises a sliding window and is not exact. It takes the calls of the last window as evenly
// spread, and rounds halves. It forgets all counts if a caller is delayed at the end of a window.
func HTTPRate() bench.Contender {
	return bench.Contender{
		Name:    "httprate",
		About:   "github.com/go-chi/httprate, its limiter without its middleware",
		Note:    "estimates a sliding window from two fixed ones; forgets all keys in a race at their end",
		Promise: bench.SlidingWindow,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			request, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
			if err != nil {
				return bench.Limiter{}, err
			}
			l := httprate.NewRateLimiter(whole(s.Limit.Capacity), s.Limit.Refill(), httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
			return asking(func(names []string) int {
				return bench.AskEach(names, func(key string) bool { return !l.OnLimit(nowhere{}, request, key) })
			})
		},
	}
}

// nowhere discards a response. Without headers, nothing is written.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}
