// Package clock reads the time from the processor's counter, and keeps it to package time's
// monotonic clock. Reading package time takes a fence, at which the processor waits for all
// earlier memory accesses. A [Clock] reads the counter without a fence. Start reading at
// [Clock.Now].
//
// # The line
//
// A line scales the counter to nanoseconds: instant = offset + slope * count. An anchor is one
// reading of both clocks, sets the offset and holds for 2 µs. A call that finds no valid anchor
// reads package time, sets the next anchor and returns its instant. So no goroutine keeps the
// clock, and it cannot run on by itself: a program that calls seldom reads package time every
// time.
//
// # Guarantees
//
//   - An instant is at most [Late] behind package time during the read, and at most [Early]
//     ahead.
//   - The error does not accumulate: in the long run the clock is off by 0 parts per million.
//   - For a goroutine the clock never goes backwards.
//   - Two goroutines that synchronize may see it go backwards by the processor's early execution
//     of a read, and by the difference of two processors' counters. Both are well below Late
//     where a kernel uses the counter itself.
//
// # Why
//
// All lines have one slope, so a line is one integer, its offset. The slope is seven eighths of
// the counter's own rate. A kernel slews its monotonic clock by at most a tenth and 1,000 parts
// per million to either side (adjtimex refuses more), so package time is always faster than the
// line. Between two anchors the line falls back by at most 0.23 of 2 µs, and each anchor raises
// the offset. Offsets and the count only grow, and so does their sum. There is no lock, and no
// call waits for another.
//
// An anchor's offset is stored before the count from which it holds. A call loads them in the
// other order, before it reads the counter. So its offset is no older than the anchor that it
// found valid.
//
// # Doubt
//
// Each anchor compares how far the two clocks came since the last. If package time came less far
// than the line, or further than any slew explains, the counter stood still, was stepped or
// restarted, or the machine was suspended. If package time cannot be read within 0.2 µs of the
// counter, one of the two is emulated. In each case the clock is package time from then on, for
// good.
//
// The clocks are compared before each anchor, which is used for 2 µs. So a counter that is
// stepped costs one error of as much at most. A counter that slows down costs as much more as it
// is slower. A counter that stands still is not noticed, but neither does the kernel's clock then
// move, which reads it.
package clock
