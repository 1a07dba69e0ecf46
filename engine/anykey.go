package engine

import (
	"reflect"
	"unsafe"

	"github.com/ral-limiter/ral/internal/core/escape"
)

// anyKey is a key of any type, in the form of formOf. Keys of up to three words of memory with at
// most one pointer, such as strings, numbers and netip.Addr, need no allocation.
type anyKey struct {
	pointer unsafe.Pointer
	a, b    uintptr
}

type keyForm struct {
	// pointer is the word that is a pointer, or noPointer or boxed.
	pointer int8
	// words is the size of a key, if it has a pointer.
	words int8
}

const (
	// The words have no pointer.
	noPointer = -1 - iota
	// The pointer is to a copy.
	boxed
)

const wordSize = unsafe.Sizeof(uintptr(0))

func formOf[K comparable]() keyForm {
	t := reflect.TypeFor[K]()
	offset, pointers := pointersIn(t, 0)
	switch words := (t.Size() + wordSize - 1) / wordSize; {
	case pointers == 0 && words <= 2:
		return keyForm{pointer: noPointer}
	case pointers == 1 && words <= 3:
		return keyForm{pointer: int8(offset / wordSize), words: int8(words)}
	}
	return keyForm{pointer: boxed}
}

// pointersIn returns the place of the last pointer in a value of the type at from, and the number
// of pointers. pointersIn overcounts the pointers of an interface.
func pointersIn(t reflect.Type, from uintptr) (offset uintptr, pointers int) {
	add := func(t reflect.Type, from uintptr) {
		if p, n := pointersIn(t, from); n > 0 {
			offset, pointers = p, min(pointers+n, 2)
		}
	}
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.UnsafePointer, reflect.Chan:
		return from, 1
	case reflect.Interface:
		return from, 2
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			add(field.Type, from+field.Offset)
		}
	case reflect.Array:
		for i := range min(t.Len(), 2) {
			add(t.Elem(), from+uintptr(i)*t.Elem().Size())
		}
	}
	return offset, pointers
}

func pack[K comparable](form keyForm, key K) (anyKey anyKey) {
	from := unsafe.Pointer(&key)
	switch form.pointer {
	case noPointer:
		*(*K)(unsafe.Pointer(&anyKey.a)) = key
	case 0:
		*(*K)(unsafe.Pointer(&anyKey)) = key
	case 1:
		anyKey.a = *(*uintptr)(from)
		anyKey.pointer = *(*unsafe.Pointer)(unsafe.Add(from, wordSize))
		if form.words > 2 {
			anyKey.b = *(*uintptr)(unsafe.Add(from, 2*wordSize))
		}
	case 2:
		anyKey.a = *(*uintptr)(from)
		anyKey.b = *(*uintptr)(unsafe.Add(from, wordSize))
		anyKey.pointer = *(*unsafe.Pointer)(unsafe.Add(from, 2*wordSize))
	default:
		box := new(K)
		*box = key
		anyKey.pointer = unsafe.Pointer(box)
	}
	return anyKey
}

// packHere is pack without a copy, for a call that keeps neither the packed key nor a pointer to it.
func packHere[K comparable](form keyForm, key *K) anyKey {
	if form.pointer == boxed {
		return anyKey{pointer: unsafe.Pointer(escape.Hide(key))}
	}
	return pack(form, *key)
}

func unpack[K comparable](form keyForm, anyKey anyKey) (key K) {
	to := unsafe.Pointer(&key)
	switch form.pointer {
	case noPointer:
		return *(*K)(unsafe.Pointer(&anyKey.a))
	case 0:
		return *(*K)(unsafe.Pointer(&anyKey))
	case 1:
		*(*uintptr)(to) = anyKey.a
		*(*unsafe.Pointer)(unsafe.Add(to, wordSize)) = anyKey.pointer
		if form.words > 2 {
			*(*uintptr)(unsafe.Add(to, 2*wordSize)) = anyKey.b
		}
	case 2:
		*(*uintptr)(to) = anyKey.a
		*(*uintptr)(unsafe.Add(to, wordSize)) = anyKey.b
		*(*unsafe.Pointer)(unsafe.Add(to, 2*wordSize)) = anyKey.pointer
	default:
		return *(*K)(anyKey.pointer)
	}
	return key
}
