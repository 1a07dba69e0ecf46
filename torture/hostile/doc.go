// Package hostile calls an engine with keys that were chosen to hurt it: 64 KiB long,
// with NUL and invalid UTF-8 in them, sequential, NaN, and interfaces that hold what
// cannot be compared, on which a plain map panics; and with floods of keys that come
// once each, while a victim stands at its limit.
//
// Checked are, for each kind of key: no verb panics, whoever calls it how many times at
// once; the table holds no more keys than it may, and memory is given back when they
// leave; equal keys share one limit and different ones do not; and the victim stays at
// its limit. That a call costs no more than twice what one on an ordinary key does is
// measured side by side, in TestCost of the long part and in BenchmarkKeys.
//
// It cannot see keys whose hashes collide: the hash is seeded at random, by
// hash/maphash, so that nobody outside can make them. Package table's tests can.
package hostile
