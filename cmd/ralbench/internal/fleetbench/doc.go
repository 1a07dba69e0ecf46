// Package fleetbench measures package fleet on a Redis that it starts: the speed of calls beside
// redis_rate and the engine, Redis's work, and the share of a limit that servers can use.
//
// Package bench runs all workloads. Redis's part is in the same results:
//
//   - Its processor time is read from INFO before and after each turn of calls.
//   - Bytes a key are read once many keys were asked for once: the sum of MEMORY USAGE, and the
//     fall of used_memory when they are forgotten.
//   - The usable share is measured by limiters that share a key under a load above the limit. Their
//     calls are audited over every window of time.
//
// Start reading at [Run].
package fleetbench
