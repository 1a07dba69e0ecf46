// Package torture tries to break the promises that Ral makes: in its documentation,
// under load, under faults, and with keys that are chosen to do harm. It holds
// nothing that a program would use.
//
// Each part is a package, and says what it checks and what it cannot see:
//
//   - linear: real goroutines get answers that one goroutine after the other could have got;
//   - soak: a million keys, with a fault every 100 ms;
//   - hostile: keys chosen to hurt;
//   - properties: random sequences of all verbs beside models that are obviously right.
//
// go test ./... runs the short part of each. docs/torture.md describes the long
// ones, and how to replay a failure.
package torture
