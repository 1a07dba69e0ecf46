// Package torture tries to break the promises that Ral makes: under load, under faults, and with
// hostile keys. Each part is a package that names its checks and their limits:
//
//   - linear: real goroutines get answers that calls in turn could have got;
//   - soak: a million keys, with a fault every 100 ms;
//   - hostile: keys chosen to hurt;
//   - properties: random sequences of all verbs beside models that are obviously right.
//
// go test ./... runs the short part of each. docs/torture.md describes the long parts and how to
// replay failures.
package torture
