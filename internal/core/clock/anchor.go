package clock

import "time"

func (c *Clock) begin(count func() uint64, packageTime func() int64) {
	if before, instant, after, ok := c.measure(count, packageTime); ok {
		c.offset.Store(instant - c.scale(after+1))
		c.since.Store(before)
	}
}

// renew sets an anchor, unless another call does, and returns its instant, or package time if the
// counter is given up.
func (c *Clock) renew(count func() uint64, packageTime func() int64) int64 {
	for {
		width, since, offset := c.width.Load(), c.since.Load(), c.offset.Load()
		before, instant, after, ok := c.measure(count, packageTime)
		switch {
		case !ok:
			return instant
		case before-since < width:
			// Another call was faster.
			return offset + c.scale(before)
		case !c.agrees(since, offset, before, instant, after):
			c.width.Store(0)
			return instant
		}
		// Package time was read before the counter came to after+1, so the line is not ahead of
		// it. A slow reading may be below the current line, which is then the better.
		if next := instant - c.scale(after+1); next > offset {
			// Another call changed the offset, perhaps for a later anchor: do not go below it.
			if !c.offset.CompareAndSwap(offset, next) {
				continue
			}
			offset = next
		}
		// A late anchor sets an earlier count than the last, and holds for less time, if at all.
		c.since.Store(before)
		return offset + c.scale(after)
	}
}

// measure reads package time between two counts. ok is false if the counter is given up.
func (c *Clock) measure(count func() uint64, packageTime func() int64) (before uint64, instant int64, after uint64, ok bool) {
	longest := c.counts(span)
	for range tries {
		if !c.Counts() {
			break
		}
		before = count()
		instant = packageTime()
		if after = count(); after-before <= longest {
			return before, instant, after, true
		}
	}
	c.width.Store(0)
	return 0, packageTime(), 0, false
}

// agrees reports whether package time and the counter came equally far since an earlier anchor,
// as far as a kernel may slew. offset, loaded before the reading, may be of a later anchor.
func (c *Clock) agrees(since uint64, offset int64, before uint64, instant int64, after uint64) bool {
	if offset+c.scale(before) > instant+int64(Early) {
		// The line is ahead: it was too fast, or package time stood still.
		return false
	}
	// While the line rises by 0.875, package time rises by 1.101 at most: 0.26 of the line's rise
	// more. The rate's error may add a hundredth.
	rise := max(c.scale(after)-c.scale(since), 0)
	return instant-c.scale(after)-offset <= rise*3/10+int64(time.Microsecond)
}
