// Package hostile calls an engine with keys that were chosen to hurt it: 64 KiB long,
// with NUL and invalid UTF-8 in them, sequential, NaN, and interfaces that hold values
// that cannot be compared, on which a plain map panics. It also sends floods of keys that
// come once each, while a victim is at its limit.
//
// It checks for each kind of key: no verb panics, however many goroutines call it at
// once; the table holds no more keys than it may, and memory is given back when they
// leave; equal keys share one limit and different ones do not; and the victim stays at
// its limit. That a call costs no more than twice what a call on an ordinary key costs is
// measured side by side, in TestCost of the long part and in BenchmarkKeys.
//
// It cannot see keys whose hashes collide: the hash is seeded at random, by
// hash/maphash, so that no client can find them. Package table's tests can.
package hostile
