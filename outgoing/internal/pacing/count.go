package pacing

import "time"

// count counts units of recently answered calls in two windows, like policy.SlidingWindow.
type count struct {
	window      time.Duration
	began       time.Duration
	now, before int64
}

// Add counts n units and returns the number in the window ending now.
func (c *count) Add(now, window time.Duration, n int64) int64 {
	switch passed := now - c.began; {
	case passed >= 2*window || window != c.window:
		*c = count{window: window, began: now}
	case passed >= window:
		c.began, c.now, c.before = c.began+window, 0, c.now
	}
	c.now += n
	left := 1 - float64(now-c.began)/float64(window)
	return c.now + int64(float64(c.before)*left+0.5)
}
