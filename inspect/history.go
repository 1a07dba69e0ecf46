package inspect

import (
	"context"
	"sync"
	"time"
)

const (
	every = 2 * time.Second // between two points
	// remembered is how many points are kept of each limit: ten minutes.
	remembered = 300
)

// history has the points of all limits. Its methods may be called by any number of
// goroutines, except note.
type history struct {
	limits []limit
	mu     sync.Mutex
	tick   uint64    // the number of the last point of each limit; the first is 1
	rings  [][]Point // of each limit: point n is at (n-1)%remembered

	// Of the last point, for the next one. Only note uses them.
	at   time.Time
	last []load
}

func newHistory(limits []limit) *history {
	h := &history{limits: limits, rings: make([][]Point, len(limits)), last: make([]load, len(limits))}
	h.begin(time.Now())
	return h
}

// begin reads the counters from which the first point counts.
func (h *history) begin(now time.Time) {
	h.at = now
	for i, l := range h.limits {
		h.last[i] = l.load()
	}
}

// run notes a point from time to time, until the context ends.
func (h *history) run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			h.note(time.Now())
		}
	}
}

// note adds a point to each limit.
func (h *history) note(now time.Time) {
	took := now.Sub(h.at).Seconds()
	if took <= 0 {
		return
	}
	points := make([]Point, len(h.limits))
	for i, l := range h.limits {
		next := l.load() // outside the lock: it may be a function of the program
		points[i] = Point{
			At:       now.UnixMilli(),
			Admitted: float64(grown(h.last[i].admitted, next.admitted)) / took,
			Refused:  float64(grown(h.last[i].refused, next.refused)) / took,
			Keys:     next.keys,
			Used:     next.used,
		}
		h.last[i] = next
	}
	h.at = now
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range points {
		if len(h.rings[i]) < remembered {
			h.rings[i] = append(h.rings[i], points[i])
		} else {
			h.rings[i][h.tick%remembered] = points[i]
		}
	}
	h.tick++
}

// grown returns by how much a counter has grown; one that fell was begun anew.
func grown(from, to uint64) uint64 {
	if to < from {
		return to
	}
	return to - from
}

// since returns the points of each limit after the one of that number, oldest first, and the
// number of the last. A number that is still to come is that of another process: all points
// are returned.
func (h *history) since(tick uint64) (points [][]Point, last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tick > h.tick {
		tick = 0
	}
	points = make([][]Point, len(h.limits))
	for i := range points {
		points[i] = []Point{}
		first := max(tick, h.tick-uint64(len(h.rings[i])))
		for n := first; n < h.tick; n++ {
			points[i] = append(points[i], h.rings[i][n%remembered])
		}
	}
	return points, h.tick
}
