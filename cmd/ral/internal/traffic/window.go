// Package traffic puts the requests of a log in the order of their arrivals, and numbers their keys. It
// knows no limit and no form of a log.
package traffic

import (
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
)

// Request is a request of a log.
type Request struct {
	// Arrival is in Unix nanoseconds.
	Arrival int64
	// Duration is 0 if the log does not tell it.
	Duration time.Duration
	Cost     int64
	// Key is a number of Keys.
	Key uint32
	// Plan is the number of the key's plan, 0 without plans.
	Plan uint8
	// Verb and Grant are of a record, and Change the number of a change of its limit.
	Verb   accesslog.Verb
	Grant  int64
	Change uint32
	// WasRefused reports whether the log itself has a refusal.
	WasRefused bool
}

// Window sorts requests by their arrivals. A log is written at the end of requests, so a request may begin
// before the requests of earlier lines. The window holds back requests until no line is expected to begin sooner.
type Window struct {
	// Span is the longest duration of a request that is sorted, more or less.
	Span time.Duration
	// Max bounds the requests that are held back.
	Max int
	// Late counts requests that came after a later one had left. They leave with its arrival.
	Late int64
	// Crowded counts requests that left sooner than Span because of Max.
	Crowded int64

	held   Heap[Request]
	newest int64 // the latest end of a request
	left   int64 // the arrival of the request that left last
}

// Push adds the request of the next line.
func (w *Window) Push(request Request) {
	w.held.Push(request.Arrival, request)
	w.Advance(request.Arrival + int64(request.Duration))
}

// Advance says that a line ends a request at an instant. Push does so, too.
func (w *Window) Advance(end int64) { w.newest = max(w.newest, end) }

// Pass returns an instant before which no request leaves any more. Call it after Pop has returned all that are in order.
func (w *Window) Pass() (now int64) {
	w.left = max(w.left, w.newest-int64(w.Span))
	return w.left
}

// Pop returns the next request that is in order. ok is false if more lines must be read first. If isEnd, no line
// is left.
func (w *Window) Pop(isEnd bool) (request Request, ok bool) {
	first, any := w.held.First()
	switch {
	case !any:
		return request, false
	case isEnd || first <= w.newest-int64(w.Span):
	case w.held.Len() > w.Max:
		w.Crowded++
	default:
		return request, false
	}
	request = w.held.Pop()
	if request.Arrival < w.left {
		w.Late++
		request.Arrival = w.left
	}
	w.left = request.Arrival
	return request, true
}

// Heap holds values in the order of instants. Values of an instant leave in the order of their coming. The
// zero Heap is empty.
type Heap[V any] struct {
	all   []item[V]
	count uint64
}

type item[V any] struct {
	when  int64
	order uint64
	value V
}

func (a *item[V]) before(b *item[V]) bool {
	return a.when < b.when || a.when == b.when && a.order < b.order
}

// Len returns the number of values.
func (h *Heap[V]) Len() int { return len(h.all) }

// First returns the instant of the next value.
func (h *Heap[V]) First() (when int64, ok bool) {
	if len(h.all) == 0 {
		return 0, false
	}
	return h.all[0].when, true
}

// Push adds a value.
func (h *Heap[V]) Push(when int64, v V) {
	h.count++
	h.all = append(h.all, item[V]{when, h.count, v})
	i := len(h.all) - 1
	for added := h.all[i]; i > 0; i = (i - 1) / 2 {
		above := (i - 1) / 2
		if !added.before(&h.all[above]) {
			break
		}
		h.all[i], h.all[above] = h.all[above], added
	}
}

// Pop removes and returns the next value of a Heap that is not empty.
func (h *Heap[V]) Pop() V {
	first := h.all[0].value
	end := len(h.all) - 1
	last := h.all[end]
	h.all[end] = item[V]{}
	h.all = h.all[:end]
	i := 0
	for i < end {
		below := 2*i + 1
		if below+1 < end && h.all[below+1].before(&h.all[below]) {
			below++
		}
		if below >= end || last.before(&h.all[below]) {
			break
		}
		h.all[i] = h.all[below]
		i = below
	}
	if end > 0 {
		h.all[i] = last
	}
	return first
}
