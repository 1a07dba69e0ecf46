package bench

import "math"

// accountant sums up what one limiter was asked, window by window, and with it
// what the limit allowed and what was possible.
//
// What is possible is what an ideal limiter would have let pass of the same
// calls. When exactly a call came within its window is not recorded, so they are
// taken to have come evenly over it, which is what callers do who ask all the
// time. In each window a key can then take what it has been asked for, or what
// it had at the beginning and what drained meanwhile, whichever is less.
type accountant struct {
	limit   Limit
	windows []Window
	asked   []int64   // by key, over all windows
	left    []float64 // by key: what it could still take at the end of the last window
	sum     float64   // possible so far
}

func newAccountant(limit Limit, keys int) *accountant {
	a := &accountant{limit: limit, asked: make([]int64, keys), left: make([]float64, keys)}
	for i := range a.left {
		a.left[i] = float64(limit.Capacity)
	}
	return a
}

// window adds a window in which the keys were asked so often.
func (a *accountant) window(w Window, asked []int64) {
	perNs := float64(a.limit.Count) / float64(a.limit.Per)
	capacity := float64(a.limit.Capacity)
	gained := 0.0
	if n := len(a.windows); n > 0 {
		gained = perNs * float64(w.Start-a.windows[n-1].End)
	}
	during := perNs * float64(w.End-w.Start)
	for i, n := range asked {
		most := min(a.left[i]+gained, capacity) + during
		// A part of a call cannot pass; it is kept for the next window.
		taken := min(float64(n), math.Floor(most))
		a.left[i] = min(most-taken, capacity)
		a.sum += taken
		a.asked[i] += n
	}
	a.windows = append(a.windows, w)
}

// calls returns how often the keys were asked in all.
func (a *accountant) calls() (n int64) {
	for _, asked := range a.asked {
		n += asked
	}
	return n
}

// allowed returns the most that the limit allowed.
func (a *accountant) allowed() (n int64) {
	most := a.limit.MostDuring(a.windows...)
	for _, asked := range a.asked {
		n += min(asked, most)
	}
	return n
}

// possible returns what an ideal limiter would have let pass.
func (a *accountant) possible() int64 {
	// The sum is of floating-point numbers; the bound is of whole ones.
	return min(int64(a.sum), a.allowed())
}
