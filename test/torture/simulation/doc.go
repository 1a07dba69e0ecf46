// Package simulation runs whole engines under a seeded scheduler and a virtual clock, with faults.
//
// Ral's code runs as it is: table, cell, queue, janitor, writer and supervisor, each on its own
// goroutines. But only one goroutine runs at a time. At every step (see package seam) the scheduler
// decides which goes on, whether a fault strikes, and how the clock moves. All decisions follow
// from the seed, so that [Run] with the same seed repeats a run exactly.
//
// # What is checked
//
//  1. At each admission: the key is within its limit in any window of time that ends there, since
//     it was last forgiven or reset. Funnels are also compared with a reference, at admissions and
//     at rest. Units in use are compared with those of the callers.
//  2. A key in use is never forgiven. Another key is forgiven only to make room in a full table,
//     only under EvictLeastDebt, and only as Stats counts it.
//  3. At each step there are at most MaxKeys keys.
//  4. After each call Stats agrees with the answers to callers.
//  5. No call waits longer than it may, in virtual time, and all end within a bounded number of
//     steps. Calls of Wait on a key are served in order of arrival.
//  6. Whenever no call is under way and the writer sleeps, table, index and nursery agree.
//  7. After a restart the clock goes on from the saved epoch. A clean stop forgives nothing, a kill
//     at most the units taken since the loaded save began.
//  8. At the end, without faults: all keys leave; each can use its limit in full, and no more;
//     Close ends all goroutines.
//
// # What breaks
//
// Writer, janitor and supervisor die repeatedly, by panics and by Goexit, at every point that they
// name. Any goroutine stalls between any two steps. The queue refuses commands despite room, so
// that its receiver is not woken. Timers of the janitor fire early. The clock of the limits stops,
// jumps and goes back; time passes during calls. Tables are so small that keys are given up
// constantly. In the middle of it the limit is replaced, for all keys or for a key in use, and the engine
// closed or killed, and restarted from its saved state.
//
// Keys are not blocked: an engine that blocks keys has another engine inside, which the scheduler does
// not know.
//
// Start reading at [Run].
package simulation
