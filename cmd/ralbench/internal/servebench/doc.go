// Package servebench measures rald beside limiters for programs in other languages: a script on
// Redis, and Envoy's rate limit service with its Redis. Each is a process on this machine, and
// answers the same load generators in turn.
//
// Start reading at [Run].
package servebench
