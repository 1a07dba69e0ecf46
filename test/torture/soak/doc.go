// Package soak lets many goroutines use an engine of a million keys with a fault every 100 ms. The
// writer panics, ends by runtime.Goexit, or stalls for 20 ms; the clock goes back a second; a burst
// of new keys overruns the queue.
//
// It checks these promises:
//
//   - No key passes more often than the limit allows. Some keys are counted call by call.
//   - Memory is bounded by the keys. A key takes as much in the end as in the beginning. After the
//     load all keys leave and memory is given back. During the load only MaxKeys bounds the keys:
//     none is given up while the index is rebuilt, which on busy processors outlasts the next
//     fault.
//   - Throughput is at least 0.9 of that without faults, as medians of alternating periods in one
//     process. The short part only reports it, having too few periods.
//
// It cannot see how long calls wait for Ral, since goroutines wait for processors too: package
// simulation does. It cannot see faults that take longer than the long part to show, nor other machines.
package soak
