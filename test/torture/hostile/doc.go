// Package hostile calls an engine with keys chosen to hurt it: 64 KiB long, NUL and invalid UTF-8,
// sequential, NaN, and incomparable interface values, on which a plain map panics. Package engine's
// own tests send floods of single-use keys.
//
// For each kind of key it checks these promises. No verb panics, however many goroutines call it.
// The table stays within its bound, and memory is given back when keys leave. Equal keys share a
// limit, different keys do not. A call costs at most twice a call on an ordinary key: see TestCost
// of the long part.
//
// It cannot see colliding hashes, since hash/maphash has a random seed. Package table's tests can.
package hostile
