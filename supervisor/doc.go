// Package supervisor is a part of package engine that may change in any release, and keeps
// goroutines running, in the manner of Erlang/OTP.
//
// A [Supervisor] starts a list of children in order, restarts each alone whenever it ends, and
// stops all in reverse order. A child is a function of a context. A child ends by nil, an error, a
// panic or a [runtime.Goexit]. When children end more often than [Config.Intensity] allows, the
// supervisor stops everything and returns an error, as the fault is not local. Three properties
// matter more than features:
//
//   - A restart is quick. There is no back-off; the sliding window of [Config.Intensity] and
//     [Config.Period] protects against spinning.
//   - Run always ends. A goroutine cannot be killed, so a child that ignores its context is
//     abandoned after [Child.Shutdown], counted and reported.
//   - The supervisor survives itself. Its bookkeeping is an idempotent step on its own goroutine:
//     compare what should run with what does, and act. If a bug panics there, a new goroutine tries
//     the step again with the same state, and the fault counts like a restart.
//
// A supervisor cannot survive [os.Exit], a fatal error of the runtime such as a concurrent map
// write, or a panic on a goroutine that a child started. A child owns the goroutines that it
// starts.
//
// # What the package must not know
//
// This package knows nothing of its children's work: limits, keys or tables. The package reads
// package time, and so runs under testing/synctest. Outside the standard library it imports only
// the package for steps of a simulation, which imports nothing of Ral.
//
// # Differences from OTP
//
// The only strategy is one_for_one, and every child is permanent. There are no trees, no dynamic
// children, no init callback and no brutal kill.
//
// # Where to start reading
//
// In this order: supervisor.go (the public face), guard.go (catches any end), life.go (an
// incarnation of a child). Then run.go (the reconcile step) with act.go and decide.go (its parts),
// and ownfault.go (the supervisor's own failures).
package supervisor
