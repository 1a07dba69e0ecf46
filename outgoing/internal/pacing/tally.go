package pacing

import "time"

// tally counts units of recently answered calls in two windows, like policy.SlidingWindow.
type tally struct {
	window      time.Duration
	began       time.Duration
	now, before int64
}

// Add counts n units and returns the number in the window ending now.
func (t *tally) Add(now, window time.Duration, n int64) int64 {
	switch passed := now - t.began; {
	case passed >= 2*window || window != t.window:
		*t = tally{window: window, began: now}
	case passed >= window:
		t.began, t.now, t.before = t.began+window, 0, t.now
	}
	t.now += n
	left := 1 - float64(now-t.began)/float64(window)
	return t.now + int64(float64(t.before)*left+0.5)
}
