// Package fleetbench measures package fleet on a real Redis that it starts: the speed of
// calls beside redis_rate and beside the engine in this process, Redis's work for them,
// and the share of a limit that several servers can use.
//
// Package bench measures the speed, in turns, with [Callers] callers. This package adds
// what happens in Redis:
//
//   - Its processor time is read from its own INFO before and after each turn, and
//     divided by the calls of that turn, the timed ones included.
//   - Bytes a key are read when each of many keys was asked for once: the sum of MEMORY
//     USAGE, and the fall of used_memory when they are forgotten.
//
// The usable share is measured apart from the speed, by several limiters that take from
// one key under a load above the limit: see [Share]. What they admitted is audited over
// every window of time, not only over the whole.
//
// Start reading at [Run].
package fleetbench
