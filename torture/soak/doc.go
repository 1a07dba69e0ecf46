// Package soak has many goroutines use an engine of a million keys while something
// breaks every 100 ms: the writer panics, or ends by runtime.Goexit, or stands still for
// 20 ms; the clock goes back a second; a burst of new keys overruns the queue.
//
// What is promised for that, and judged here:
//
//   - Nobody passes more often than the limit allows. Some keys are counted call by
//     call.
//   - No call waits longer than it may: one on a known key never, one on a new key for
//     OpenTimeout. Wall time cannot tell, since a goroutine may be without a processor
//     for longer than that and Ral has no part in it. So this is judged inside a bubble
//     of testing/synctest, where time passes only while everybody waits: what a call
//     takes there is what Ral made it wait, to the nanosecond.
//   - Memory is bounded by the keys: a key takes as much in the end as in the beginning,
//     and when the load is over all keys leave and memory is given back. Under the load
//     the number of keys is not flat, but bounded by MaxKeys alone: nobody is
//     evicted while the index is being rebuilt, and where all processors are busy that
//     takes longer than until the next fault.
//   - Throughput is at least 0.9 of what it is without faults. Periods with faults and
//     without them alternate within one process, and their medians are compared; the
//     long part asserts it, the short part has too few periods and only reports it.
//
// It cannot see what takes longer than the long part runs, nor other machines.
package soak
