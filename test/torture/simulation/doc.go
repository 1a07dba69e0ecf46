// Package simulation runs whole engines under a seeded scheduler and a virtual clock,
// and breaks them on purpose.
//
// What runs is the code of Ral as it is: table, cell, queue, janitor, writer and
// supervisor, each on goroutines of their own. But only one of them runs at a time, and
// at every step (see package seam) the scheduler decides which goes on, whether a fault
// strikes, and how the clock moves. All its decisions follow from one number, the seed,
// so that a run can be repeated exactly: by [Run] with the same seed.
//
// # What is checked
//
//  1. At each admission: the key is not above its limit in any window of time that
//     ends there, since it was last forgiven or reset. For funnels, each
//     admission is also compared with a reference, and so is what remains at rest.
//  2. A key is forgiven only to make room in a full table, only under EvictLeastDebt,
//     and only as Stats counts it.
//  3. At each step there are no more keys than MaxKeys.
//  4. After each call Stats agrees with the answers that the callers got.
//  5. No call waits longer than it may, in virtual time, and all end within a bounded
//     number of steps. Calls of Wait on a key are served in the order in which they
//     came.
//  6. Whenever no call is under way and the writer sleeps, table, index and nursery agree.
//  7. After a restart the clock goes on from the saved epoch. A clean stop forgives
//     nothing, a kill at most what was taken since the loaded save began.
//  8. At the end, when nothing breaks any more: all keys leave; each can use its limit
//     in full, and no more; Close ends all goroutines.
//
// # What breaks
//
// The writer, the janitor and the supervisor die, by panics and by Goexit, at every
// point that they name, again and again. Any goroutine stalls between any two steps.
// The queue refuses commands although it has room, so that its receiver is not woken. Timers of the janitor fire early. The clock by which limits are kept
// stops, jumps, and goes back; time passes while calls are under way. Tables are so
// small that keys are given up all the time. The limit is replaced, and the engine
// closed, or killed, and begun anew from its saved state, in the middle of it.
//
// Start reading at [Run].
package simulation
