// Package clock reads the processor's counter, kept to package time's monotonic clock. Reading
// package time takes a fence, at which the processor waits for earlier memory accesses; a [Clock]
// takes none. Start reading at [Clock.Now].
//
// # The line
//
// A line scales the counter to nanoseconds: instant = offset + slope * count. An anchor, a
// reading of both clocks, sets the offset for 2 µs. A call without a valid anchor reads package
// time, sets the next anchor and returns its instant. No goroutine keeps the clock, and it cannot
// run on by itself.
//
// # Guarantees
//
//   - An instant is at most [Late] behind package time during the read, and [Early] ahead.
//   - The error does not accumulate.
//   - For a goroutine the clock never goes backwards.
//   - Two goroutines that synchronize may see it go backwards by the processor's early reads and
//     the difference of two counters. Both are well below Late where a kernel uses the counter.
//
// # Why
//
// All lines have the same slope, so a line is an integer, its offset. The slope is seven eighths
// of the counter's own rate. A kernel slews its monotonic clock by at most a tenth and 1,000
// parts per million (adjtimex refuses more). So package time is always faster than the line.
// Between two anchors the line falls back by at most 0.23 of 2 µs, and each anchor raises the
// offset. Offsets and the count only grow, and so does their sum. No call waits for another.
//
// An anchor's offset is stored before its count. A call loads them in the other order, before it
// reads the counter. So its offset is no older than the anchor that it found valid.
//
// # Doubt
//
// Each anchor compares how far the two clocks came since the last. If package time came less far
// than the line, or further than any slew explains, the counter stopped, was stepped or
// restarted, or the machine was suspended. If package time cannot be read within 0.2 µs, a clock
// is emulated. The clock is then package time for good.
//
// The clocks are compared before each anchor, which holds for 2 µs. So a stepped counter costs an
// error of the step at most, and a slower counter as much more as it is slower. A counter that
// stops goes unnoticed, but it also stops the kernel's clock, which is read from it.
package clock
