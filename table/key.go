package table

import (
	"reflect"
	"unsafe"
)

// A short text stands in the entry itself, in place of the key and behind it. A lookup compares the
// text in the memory that it loads for the word. A text elsewhere would be one more miss of the
// cache: a server builds its keys anew, so nothing else has read the stored text lately. Such an
// entry has no pointer for the collector to follow, and keeps no memory of the caller's alive.

// texted is an Entry of a text of at most len(T) bytes.
type texted[T any] struct {
	Level
	text T
}

// isText reports whether keys of type K are texts. Interfaces are not, since their keys may be of
// any type.
func isText[K comparable]() bool { return reflect.TypeFor[K]().Kind() == reflect.String }

// newEntry returns an entry of the key with the word 0. If keys are texts, a short key is copied
// into it.
func newEntry[K comparable](key K, texts bool) *Entry[K] {
	if !texts {
		return &Entry[K]{key: key}
	}
	text := *(*string)(unsafe.Pointer(&key))
	var beside unsafe.Pointer
	// Each size is one of the allocator's. An entry of 64 bytes fills a cache line; one of 48 would
	// cross the border of two in half of all cases.
	switch {
	case len(text) <= 16:
		beside = unsafe.Pointer(new(texted[[16]byte]))
	case len(text) <= 48:
		beside = unsafe.Pointer(new(texted[[48]byte]))
	case len(text) <= 64:
		beside = unsafe.Pointer(new(texted[[64]byte]))
	case len(text) <= maxText:
		beside = unsafe.Pointer(new(texted[[maxText]byte]))
	default:
		return &Entry[K]{key: key}
	}
	entry := (*Entry[K])(beside)
	entry.returned.Store(textMark(len(text)))
	copy(unsafe.Slice(entry.text(), len(text)), text)
	return entry
}

func (e *Entry[K]) text() *byte { return (*byte)(unsafe.Pointer(&e.key)) }

// Key returns the entry's key. A text of at most 80 bytes stands in the entry, and keeps it alive.
func (e *Entry[K]) Key() K {
	if mark := e.returned.Load() & textMarks; mark != 0 {
		text := unsafe.String(e.text(), mark/oneByte-1)
		return *(*K)(unsafe.Pointer(&text))
	}
	return e.key
}

// is reports whether the entry is of the key.
func (e *Entry[K]) is(key K) bool {
	// Keys of other sizes are no texts.
	if unsafe.Sizeof(key) == unsafe.Sizeof("") {
		if mark := e.returned.Load() & textMarks; mark != 0 {
			text := *(*string)(unsafe.Pointer(&key))
			return mark == textMark(len(text)) && unsafe.String(e.text(), len(text)) == text
		}
	}
	return e.key == key
}
