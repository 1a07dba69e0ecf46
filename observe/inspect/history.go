package inspect

import (
	"context"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/pagejson"
)

const (
	every      = 2 * time.Second // between two points
	remembered = 300             // points of each limit: ten minutes
)

// history has the points of all limits. Its methods except note are safe for concurrent use.
type history struct {
	limits []limit
	mu     sync.Mutex
	tick   uint64             // number of each limit's last point, from 1
	rings  [][]pagejson.Point // of each limit: point n is at (n-1)%remembered

	// Of the last point, for the next. Only note uses them.
	noted time.Time
	last  []load
	lost  []bool // the counters of a limit could not be read

	trouble func(limit string, err error) // is told when that begins
}

func newHistory(limits []limit, trouble func(limit string, err error)) *history {
	h := &history{limits: limits, rings: make([][]pagejson.Point, len(limits)), last: make([]load, len(limits)), lost: make([]bool, len(limits)), trouble: trouble}
	h.begin(time.Now())
	return h
}

func (h *history) begin(now time.Time) {
	h.noted = now
	for i := range h.limits {
		h.last[i], _ = h.read(i)
	}
}

// read reads the counters of a limit. ok reports that they could be read now and before.
func (h *history) read(i int) (now load, ok bool) {
	now, err := h.limits[i].load()
	if err != nil && !h.lost[i] {
		h.trouble(h.limits[i].name(), err)
	}
	ok = err == nil && !h.lost[i]
	h.lost[i] = err != nil
	return now, ok
}

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

func (h *history) note(now time.Time) {
	took := now.Sub(h.noted).Seconds()
	if took <= 0 {
		return
	}
	points := make([]pagejson.Point, len(h.limits))
	for i := range h.limits {
		next, ok := h.read(i) // outside the lock: it may be a function of the program
		points[i] = pagejson.Point{At: now.UnixMilli(), Keys: next.keys, Used: next.used}
		if ok {
			points[i].Admitted = float64(grown(h.last[i].admitted, next.admitted)) / took
			points[i].Refused = float64(grown(h.last[i].refused, next.refused)) / took
		}
		h.last[i] = next
	}
	h.noted = now
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

func grown(from, to uint64) uint64 {
	if to < from {
		return to
	}
	return to - from
}

// since returns the points of each limit after a tick, oldest first, and the last tick. A future
// tick is from another process: it returns all points.
func (h *history) since(tick uint64) (points [][]pagejson.Point, last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tick > h.tick {
		tick = 0
	}
	points = make([][]pagejson.Point, len(h.limits))
	for i := range points {
		points[i] = []pagejson.Point{}
		first := max(tick, h.tick-uint64(len(h.rings[i])))
		for n := first; n < h.tick; n++ {
			points[i] = append(points[i], h.rings[i][n%remembered])
		}
	}
	return points, h.tick
}
