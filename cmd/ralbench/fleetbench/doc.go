// Package fleetbench measures package fleet on a real Redis that it starts: how fast
// calls are answered beside redis_rate and beside the engine in this process, what
// Redis spends on them, and how much of a limit several servers can use.
//
// The speed is measured by package bench, in turns, with [Callers] callers; see there
// for how. What is added here is what happens in Redis:
//
//   - Its processor time is read from its own INFO before and after each turn, and
//     divided by the calls of that turn, the timed ones included.
//   - Bytes a key are read when each of many keys has been asked once: what MEMORY
//     USAGE says of them, and by how much used_memory shrinks when they are forgotten.
//
// The usable share is measured apart from the speed, by several limiters that take one
// key under a load of more than the limit: see [Share]. What they admitted is audited
// over every window of time, not only over the whole.
//
// Start reading at [Run].
package fleetbench
