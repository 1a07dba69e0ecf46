// Package clock reads the time from the processor's counter, and keeps it to package
// time's monotonic clock.
//
// Reading package time's clock takes a fence, at which the processor waits for all memory
// accesses before it. A [Clock] reads the counter without one. It knows nothing of keys
// and limits.
//
// # The line
//
// The counter is scaled to nanoseconds by a line: instant = offset + slope * count. An
// anchor is one reading of both clocks, and sets the offset. It holds for 2 µs. A call
// that finds no anchor which holds reads package time, sets the next anchor, and returns
// its instant. So there is no goroutine that has to keep the clock, and no clock that
// could run on by itself: a program that calls seldom reads package time every time.
//
// # What holds
//
//   - An instant is never more than [Late] behind package time as it was during the read,
//     and never ahead of it by more than [Early].
//   - The error does not accumulate: in the long run the clock is off by 0 parts per
//     million.
//   - For a goroutine the clock never goes backwards.
//   - Two goroutines of which one synchronizes with the other may see it go backwards, by
//     what a processor executes a read before its turn, and by what the counters of two
//     processors differ. Both are well below Late where a kernel uses the counter itself.
//
// # Why
//
// All lines have one slope, so a line is one integer, its offset. The slope is seven
// eighths of the counter's own rate. A kernel slews its monotonic clock by at most a tenth
// and 1,000 parts per million to either side (adjtimex refuses more), so package time is
// always faster than the line. Between two anchors the line therefore falls back, at most
// by 0.23 of 2 µs, and each anchor raises the offset. Offsets only grow, and so does
// the count, and so does their sum. There is no lock, and no call ever waits for another.
//
// An anchor's offset is stored before the count from which it holds, and they are loaded
// in the other order, before the counter is read. So a call uses an offset no older than
// the anchor that it found to hold.
//
// # Doubt
//
// Each anchor compares how far the two clocks came since the last. If package time came
// less far than the line, or further than any slew explains, the counter stood still,
// was stepped or restarted, or the machine was suspended. If package time cannot be read
// within 0.2 µs of the counter, one of the two is emulated. In each case the clock is
// package time from then on, for good.
//
// Two clocks are compared before they are an anchor, and an anchor is used for 2 µs. So a
// counter that is stepped costs one error of as much, at most, and one that becomes slower
// costs more by as much as it is slower. A counter that stands still is not noticed, but
// then neither does the kernel's clock move that is read from it.
//
// Start reading at [Clock.Now].
package clock
