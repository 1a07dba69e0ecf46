// Package soak lets many goroutines use an engine of a million keys while something
// breaks every 100 ms: the writer panics, or ends by runtime.Goexit, or stands still for
// 20 ms; the clock goes back a second; a burst of new keys overruns the queue.
//
// It checks these promises:
//
//   - No key passes more often than the limit allows. Some keys are counted call by
//     call.
//   - No call waits longer than it may: a call on a known key never, a call on a new key
//     for OpenTimeout. Wall time cannot show this, since a goroutine may be without a
//     processor for longer. So this is judged inside a bubble of testing/synctest, where
//     time passes only while every goroutine waits. The time that a call takes there is
//     the time that Ral made it wait, to the nanosecond.
//   - Memory is bounded by the keys: a key takes as much in the end as in the beginning,
//     and when the load is over all keys leave and memory is given back. Under the load
//     the number of keys is not flat, but bounded by MaxKeys alone: no key is given up
//     while the index is being rebuilt, and if all processors are busy that takes longer
//     than until the next fault.
//   - Throughput is at least 0.9 of what it is without faults. Periods with faults and
//     without them alternate within one process, and their medians are compared; the
//     long part asserts it, the short part has too few periods and only reports it.
//
// It cannot see faults that take longer than the long part runs to show, nor other
// machines.
package soak
