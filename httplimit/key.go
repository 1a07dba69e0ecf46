package httplimit

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"
)

// A key function finds in a request who is limited. It is any func(*http.Request) K, and
// returns the zero value of K if there is no key: Limit.WhenNoKey says what then. It runs
// once a request, on the request's goroutine, and once more for a line of Options.Logger;
// it must be safe for concurrent use. nil is none: New refuses it, and what is made of it
// is nil. Keys that strangers choose should have a bounded length: the engine keeps them.

// longestHeaderKey is the length from which header values are hashed. Common API keys
// are shorter, and a table full of those that are not takes no more than this a key.
const longestHeaderKey = 64

// ByHeader returns a key function for the value of a header field, such as an API key.
// Values longer than 64 bytes are replaced by their SHA-256 hash, so that a key's size is
// bounded; it begins with a byte that no header field can hold, so that no value is taken
// for another's hash. A field that is missing or empty is no key.
//
// Of several fields of the name the first counts, as in http.Header.Get. The handler
// should go by the same.
//
// "Host" is the host that the request is for, which net/http keeps elsewhere. If name is
// not that of a header field the function is nil.
//
// Nobody has looked yet whether the value is true: whoever invents one for each request
// is a new client each time. Put this limit behind what authenticates, or a limit by
// address beside it.
func ByHeader(name string) func(*http.Request) string {
	if !isToken(name) {
		return nil
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		return func(r *http.Request) string { return bounded(r.Host) }
	}
	return func(r *http.Request) string {
		values := r.Header[name]
		if len(values) == 0 {
			return ""
		}
		return bounded(values[0])
	}
}

func bounded(value string) string {
	if len(value) <= longestHeaderKey {
		return value
	}
	var hashed [1 + sha256.Size]byte // 0 first
	h := sha256.New()
	// In pieces, as a string is not to be copied as a whole.
	for piece := make([]byte, 512); value != ""; {
		n := copy(piece, value)
		h.Write(piece[:n])
		value = value[n:]
	}
	h.Sum(hashed[:1])
	return string(hashed[:])
}

// ByPattern returns a key function for the route: the pattern of http.ServeMux that the
// request matches, such as "GET /users/{id}", which unlike the path no client can make up.
// Behind the mux (limit.Handler around a handler that is registered with it) that is
// Request.Pattern, and mux may be nil. In front of it the mux is asked, which costs
// a second look for the route. A request that matches no pattern has no key; nor has a
// CONNECT there, for which the mux may name the path instead.
//
// It is of little use alone, as all clients share a route's key: see [Both].
func ByPattern(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		if r.Pattern != "" || mux == nil || r.Method == http.MethodConnect {
			return r.Pattern
		}
		_, pattern := mux.Handler(r)
		return pattern
	}
}

// ByContext returns a key function for a value of type K that an earlier middleware put
// into the request's context under name, such as the user that it authenticated. There is
// no key if there is no such value, or one of another type.
func ByContext[K comparable](name any) func(*http.Request) K {
	return func(r *http.Request) K { return fromContext[K](r.Context(), name) }
}

func fromContext[K comparable](ctx context.Context, name any) K {
	key, _ := ctx.Value(name).(K)
	return key
}

// Pair is two keys in one: that of [Both].
type Pair[A, B comparable] struct {
	A A
	B B
}

// Both combines two key functions: each pair of keys is a key of its own. Nothing is
// formatted or joined, so that no content of one part can be taken for another pair. If
// either has no key there is none.
func Both[A, B comparable](a func(*http.Request) A, b func(*http.Request) B) func(*http.Request) Pair[A, B] {
	if a == nil || b == nil {
		return nil
	}
	return func(r *http.Request) Pair[A, B] {
		var zero Pair[A, B]
		pair := Pair[A, B]{a(r), b(r)}
		if pair.A == zero.A || pair.B == zero.B {
			return zero
		}
		return pair
	}
}

// Join combines key functions for engines whose keys are strings. Each part is preceded
// by its length, so that no two rows of parts give the same key whatever they hold. If one
// has no key there is none. [Both] does the same without making a string.
func Join(keys ...func(*http.Request) string) func(*http.Request) string {
	for _, key := range keys {
		if key == nil {
			return nil
		}
	}
	return func(r *http.Request) string {
		var joined strings.Builder
		for _, key := range keys {
			part := key(r)
			if part == "" {
				return ""
			}
			joined.WriteString(strconv.Itoa(len(part)))
			joined.WriteByte(':')
			joined.WriteString(part)
		}
		return joined.String()
	}
}

// ByString makes strings of the keys of another key function, for engines whose keys are
// strings: httplimit.ByString(httplimit.ByAddr). No key stays none. It formats each key
// anew; an engine whose keys are of that type itself need not.
func ByString[K interface {
	comparable
	String() string
}](key func(*http.Request) K) func(*http.Request) string {
	if key == nil {
		return nil
	}
	return func(r *http.Request) string {
		var zero K
		if k := key(r); k != zero {
			return k.String()
		}
		return ""
	}
}
