package inspect

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/pagejson"
)

// A limit keeps 31,680 bytes: 300 points of the last ten minutes, 480 of the last day, and 60 calm minutes.
const (
	// every is the time between two points.
	every     = 2 * time.Second
	maxPoints = 300
	// coarse is the number of points that make one coarse point, of three minutes.
	coarse    = 90
	maxCoarse = 480
	// recent is the number of the last points, whose mean is compared with the usual. pointsPerMinute is the
	// number of points in a minute.
	recent          = 15
	pointsPerMinute = 30
	// The usual is known after minCalm calm minutes, and comes from the last maxCalm calm minutes.
	minCalm = 10
	maxCalm = 60
	// pointsPerHour is the number of coarse points in an hour: a day ago, that hour is compared with the
	// present.
	pointsPerHour = 20
)

// history has the points of all limits. Its methods except note are safe for concurrent use.
type history struct {
	limits []limit
	mu     sync.Mutex
	// tick is the number of each limit's last point, from 1.
	tick uint64
	// points and coarse have the last points of each limit, oldest first.
	points, coarse [][]pagejson.Point

	// refused has the refusals of each limit beside the usual.
	refused []refusals

	// noted and last are the time and the counters of the last point, from which the next is made.
	// Only note changes them.
	noted time.Time
	last  []load
	// lost means that the counters of a limit could not be read.
	lost []bool

	// trouble is called when the counters of a limit cannot be read any more.
	trouble func(limit string, err error)
}

// push adds the newest point, in place of the oldest if there are as many as the capacity.
func push(points []pagejson.Point, point pagejson.Point) []pagejson.Point {
	if len(points) == cap(points) {
		points = points[:copy(points, points[1:])]
	}
	return append(points, point)
}

// newest returns the last n points or all if they are fewer, oldest first.
func newest(points []pagejson.Point, n int) []pagejson.Point {
	return slices.Clone(points[max(0, len(points)-n):])
}

// newHistory returns a history that goes on with the points and refusals of limits that before, unless it
// is nil, has under the same names.
func newHistory(limits []limit, trouble func(limit string, err error), before *history) *history {
	h := &history{limits: limits, last: make([]load, len(limits)), lost: make([]bool, len(limits)), trouble: trouble, noted: time.Now()}
	for i := range limits {
		h.last[i], _ = h.read(i)
	}
	if before == nil {
		before = &history{}
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	h.tick = before.tick
	for i, l := range limits {
		h.points = append(h.points, make([]pagejson.Point, 0, maxPoints))
		h.coarse = append(h.coarse, make([]pagejson.Point, 0, maxCoarse))
		h.refused = append(h.refused, refusals{usual: -1})
		if j := slices.IndexFunc(before.limits, func(limit limit) bool { return limit.name() == l.name() }); j >= 0 {
			h.points[i], h.coarse[i] = append(h.points[i], before.points[j]...), append(h.coarse[i], before.coarse[j]...)
			h.refused[i] = before.refused[j]
			h.refused[i].calm = slices.Clone(h.refused[i].calm)
		}
	}
	return h
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
		// The lock is not held, as the call may be a function of the program.
		next, ok := h.read(i)
		points[i] = pagejson.Point{At: now.UnixMilli(), Keys: next.keys, Used: next.used}
		if ok {
			points[i].Admitted = grown(h.last[i].admitted, next.admitted) / took
			points[i].Refused = grown(h.last[i].refused, next.refused) / took
		}
		h.last[i] = next
	}
	h.noted = now
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	for i := range points {
		h.points[i] = push(h.points[i], points[i])
		if h.tick%coarse == 0 {
			h.coarse[i] = push(h.coarse[i], mean(newest(h.points[i], coarse)))
		}
		h.refused[i].compare(newest(h.points[i], recent))
		if h.tick%pointsPerMinute == 0 {
			h.refused[i].learn(mean(newest(h.points[i], pointsPerMinute)).Refused, newest(h.coarse[i], maxCoarse))
		}
	}
}

func grown(from, to float64) float64 {
	if to < from {
		return to
	}
	return to - from
}

// mean returns the mean load over points at their end, with the highest use.
func mean(points []pagejson.Point) (point pagejson.Point) {
	for _, p := range points {
		point.At, point.Keys, point.Used = p.At, p.Keys, max(point.Used, p.Used)
		point.Admitted += p.Admitted / float64(len(points))
		point.Refused += p.Refused / float64(len(points))
	}
	return point
}

// since returns the points of each limit after a tick, oldest first, its refusals, and the last tick. A
// future tick is from another process: it returns all points.
func (h *history) since(tick uint64) (points [][]pagejson.Point, refused []refusals, last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tick > h.tick {
		tick = 0
	}
	points = make([][]pagejson.Point, len(h.limits))
	for i := range points {
		points[i] = newest(h.points[i], int(min(h.tick-tick, maxPoints)))
	}
	return points, slices.Clone(h.refused), h.tick
}

// day returns the coarse points of a limit, oldest first.
func (h *history) day(name string) []pagejson.Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.limits, func(limit limit) bool { return limit.name() == name })
	return newest(h.coarse[i], maxCoarse)
}

// refusals compares a limit's refusals a second with the usual.
type refusals struct {
	// now is the mean of the last half minute.
	now float64
	// usual is the median of calm or, if it is more, the mean of the same hour yesterday. usual is
	// -1 if neither is known.
	usual float64
	// alarm reports whether now is unusual.
	alarm bool

	// calm has the means of the last minutes without an alarm, oldest first: a long alarm leaves the
	// usual as it was.
	calm []float64
	// disturbed reports whether an alarm stood in the present minute.
	disturbed bool
}

// Refusals are unusual from minUnusual a second and farAbove times the usual.
const minUnusual, farAbove = 1, 5

// compare compares the points of the last half minute with the usual. Without a usual it is an alarm
// if more calls are refused than admitted.
func (r *refusals) compare(points []pagejson.Point) {
	point := mean(points)
	r.now = point.Refused
	far := r.now >= farAbove*r.usual
	if r.usual < 0 {
		far = r.now > point.Admitted
	}
	r.alarm = far && r.now >= minUnusual && len(points) == recent
	r.disturbed = r.disturbed || r.alarm
}

// learn takes the refusals a second of the last minute, and the coarse points of the day.
func (r *refusals) learn(last float64, day []pagejson.Point) {
	if !r.disturbed {
		r.calm = append(r.calm[max(0, len(r.calm)-maxCalm+1):], last)
	}
	r.disturbed = r.alarm
	if n := len(r.calm); n >= minCalm {
		r.usual = slices.Sorted(slices.Values(r.calm))[n/2]
	}
	if len(day) == maxCoarse {
		r.usual = max(r.usual, mean(day[:pointsPerHour]).Refused)
	}
}
