// Package supervisor is a part of package engine that may change in any release: it keeps
// goroutines running, in the manner of Erlang/OTP.
//
// A [Supervisor] starts a list of children in order, starts a child again by itself
// whenever it ends, and stops all in the reverse order. A child is a function of a
// context; nil, an error, a panic and a [runtime.Goexit] are all just reasons for its
// end. When children end more often than [Config.Intensity] allows, the supervisor
// gives up, stops everything and returns an error: the fault is not local, and must be
// dealt with higher up.
//
// Three properties are worth more here than features:
//
//   - A restart is quick. There is no back-off; the sliding window of
//     [Config.Intensity] and [Config.Period] is what protects against spinning.
//   - Run always ends. A goroutine cannot be killed from outside, so a child
//     that ignores its context is abandoned after [Child.Shutdown], counted and
//     reported, rather than waited for for ever.
//   - The supervisor survives itself. Its bookkeeping is one idempotent step,
//     "compare what should run with what does run, and act", on a goroutine of
//     its own. If a bug panics in there, the step is tried again on a new
//     goroutine with the same state, and the fault is counted like a restart.
//
// What it cannot survive is what ends the process: [os.Exit], a fatal error of
// the runtime such as a concurrent map write, or a panic on a goroutine that a
// child started by itself. A child owns the goroutines that it starts.
//
// # What it must not know
//
// This package knows nothing of what its children do: no rate limiting, no keys, no
// tables. It reads package time, so that it runs under testing/synctest. Outside the
// standard library it imports only the package through which a simulation of Ral runs
// its steps, which itself imports nothing of Ral.
//
// # Differences from OTP
//
// The only strategy is one_for_one, and every child is permanent. There are no trees,
// no dynamic children, no init callback and no brutal kill.
//
// # Where to start reading
//
// In this order: supervisor.go (the public face), guard.go (how an end of any
// kind is caught), life.go (one incarnation of a child), run.go (the reconcile
// step) with act.go and decide.go (its parts), ownfault.go (when the supervisor itself
// fails). Aside from that: config.go, errors.go, event.go, start.go.
package supervisor
