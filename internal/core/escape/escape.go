// Package escape keeps variables on the stack that the compiler would move to the heap.
package escape

import "unsafe"

// Hide returns p, and hides from the compiler where p goes, as through an interface. So p may point
// to the stack. A caller must not keep p after its variable's function returns, nor may pointers to
// other variables that it leads to.
//
// Hide must not call anything, also when instrumented, as the stack could move.
//
//go:nosplit
//go:norace
//go:nocheckptr
func Hide[T any](p *T) *T {
	address := uintptr(unsafe.Pointer(p))
	return *(**T)(unsafe.Pointer(&address))
}
