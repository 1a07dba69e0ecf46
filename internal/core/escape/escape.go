// Package escape keeps variables on the stack that the compiler would move to the heap.
package escape

import "unsafe"

// Hide returns p, and hides from the compiler where it goes, as through an interface. So p may point
// to the stack. It must not be kept after its variable's function returns, nor may pointers to other
// variables that it leads to.
func Hide[T any](p *T) *T {
	address := uintptr(unsafe.Pointer(p))
	return *(**T)(unsafe.Pointer(&address))
}
