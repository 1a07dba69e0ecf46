// Package soak lets many goroutines use an engine of a million keys with a fault every 100 ms. The
// writer panics, ends by runtime.Goexit, or stalls for 20 ms; the clock goes back a second; a burst
// of new keys overruns the queue.
//
// It checks these promises:
//
//   - No key passes more often than the limit allows. Some keys are counted call by call.
//   - No call waits too long: never on a known key, at most OpenTimeout on a new key. Wall time
//     cannot show this, since goroutines wait for processors. In a bubble of testing/synctest time
//     passes only while every goroutine waits, so it shows Ral's part to the nanosecond.
//   - Memory is bounded by the keys. A key takes as much in the end as in the beginning. After the
//     load all keys leave and memory is given back. During the load only MaxKeys bounds the keys:
//     none is given up while the index is rebuilt, which on busy processors outlasts the next
//     fault.
//   - Throughput is at least 0.9 of that without faults, as medians of alternating periods in one
//     process. The short part only reports it, having too few periods.
//
// It cannot see faults that take longer than the long part to show, nor other machines.
package soak
