package peers

import (
	"net/http"

	"github.com/go-chi/httprate"

	"github.com/ral-limiter/ral/bench"
)

// HTTPRate is github.com/go-chi/httprate: NewRateLimiter with its counter in
// memory, asked by OnLimit, which decides and counts in one step and is what its
// middleware calls. It wants a request and a response; they are the same for all
// calls, and the headers that it would write are switched off by its own option,
// so that little of HTTP is measured.
//
// It keeps its keys itself, by their hash, in two maps under two locks: one of
// this window and one of the last. Older counts are forgotten, so that it is never
// full. The maps keep their room, and nothing leaves unless it is asked.
//
// It promises a sliding window and is not exact: the calls of the last window are taken
// to have been spread evenly over it, halves are rounded, and a caller that is held up
// at the end of a window makes it forget all counts.
func HTTPRate() bench.Contender {
	return bench.Contender{
		Name:    "httprate",
		About:   "github.com/go-chi/httprate, its limiter without its middleware",
		Note:    "estimates a sliding window from two fixed ones; forgets all keys in a race at their end",
		Promise: bench.SlidingWindow,
		Needs:   keepsAll,
		New: func(s bench.Setup) (bench.Limiter, error) {
			request, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
			return &httpRate{
				limiter: httprate.NewRateLimiter(whole(s.Limit.Capacity), s.Limit.Refill(),
					httprate.WithResponseHeaders(httprate.ResponseHeaders{})),
				request: request,
			}, err
		},
	}
}

type httpRate struct {
	inMemory
	limiter *httprate.RateLimiter
	request *http.Request
}

// Choke implements bench.Limiter.
func (h *httpRate) Choke(key string) bool { return !h.limiter.OnLimit(nowhere{}, h.request, key) }

// ChokeAll implements bench.Limiter.
func (h *httpRate) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return h.Choke(key) })
}

// nowhere is a response that is thrown away. Without headers, nothing is written.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}
