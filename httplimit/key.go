package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
)

// A key function finds the key of a request. It is any func(*http.Request) K. It returns
// the zero value of K if there is no key, and Limit.WhenNoKey then chooses the answer. It
// runs once for each request on the request's goroutine, and once more for a line of
// Options.Logger, so it must be safe for concurrent use. New refuses a nil key function, and
// combining one with others gives nil. The engine stores keys: bound the length of those
// that clients choose.

// ByHeader returns a key function for the value of a header field, such as an API key,
// without spaces and tabs at its ends. HTTP/1 does not count them as part of a value, and
// over HTTP/2 they would make keys of their own. A field that is missing or empty is no key.
// Values longer than 64 bytes are replaced by their SHA-256 hash, which bounds a key's size.
// A hash begins with a byte that no header field can hold, so no value equals a hash.
//
// If the field is repeated its first value counts, as for http.Header.Get. The handler
// should go by the same one.
//
// "Host" is the host that the request is for, which net/http keeps in Request.Host. It is
// in lower case and without its port and a final dot, as one handler commonly serves all
// these spellings. The client chooses it: limit by it only if unknown hosts are refused
// before.
//
// If name is not that of a header field the function is nil.
//
// A value is not checked. A client that invents one for each request has a new key each
// time. Put this limit behind authentication, or put a limit by address beside it.
func ByHeader(name string) func(*http.Request) string {
	if !clientaddr.IsToken(name) {
		return nil
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		return func(r *http.Request) string { return clientaddr.Bounded(hostOf(r.Host)) }
	}
	return func(r *http.Request) string {
		values := r.Header[name]
		if len(values) == 0 {
			return ""
		}
		return clientaddr.Bounded(clientaddr.Trim(values[0]))
	}
}

// hostOf returns the host of an authority (RFC 9110, section 7.2): without its port and a
// final dot, ASCII letters in lower case, an IPv6 address in its shortest form.
func hostOf(authority string) string {
	host := clientaddr.Trim(authority)
	if end := strings.IndexByte(host, ']'); end >= 0 && host[0] == '[' {
		host = host[:end+1]
		if addr := clientaddr.Parse(host); addr.IsValid() {
			return addr.String()
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	for i := range len(host) {
		if 'A' <= host[i] && host[i] <= 'Z' {
			return lower(host)
		}
	}
	return host
}

// lower returns s with its ASCII letters in lower case. Other letters are left as they are:
// some of them have an ASCII letter as their lower case.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// ByPattern returns a key function for the route: the pattern of http.ServeMux that the
// request matches, such as "GET /users/{id}". Unlike a path, clients cannot invent one.
//
// Give it the mux that the request reaches next: limit.Handler(mux) takes ByPattern(mux).
// The mux is asked for the pattern, which costs a second look for the route. That mux may
// itself be registered with an outer one, also behind http.StripPrefix: its own patterns
// are the keys.
//
// A nil mux stands for the mux that the request came through last, whose pattern is
// Request.Pattern: mux.Handle(pattern, limit.Handler(handler)) takes ByPattern(nil).
// Join(ByPattern(nil), ByPattern(mux)) tells apart the places that one inner mux is
// registered at.
//
// A request that matches no pattern has no key. A request that the mux redirects has the
// pattern of its target. A CONNECT request has no key if a mux is given, as the mux may
// answer with the path in place of a pattern.
//
// All clients share a route's key: combine it with another by [Both].
func ByPattern(mux *http.ServeMux) func(*http.Request) string {
	if mux == nil {
		return func(r *http.Request) string { return r.Pattern }
	}
	return func(r *http.Request) string {
		if r.Method == http.MethodConnect {
			return ""
		}
		_, pattern := mux.Handler(r)
		return pattern
	}
}

// ByContext returns a key function for a value of type K that an earlier middleware stored
// in the request's context under name, such as the authenticated user. A request without
// such a value, or with one of another type, has no key.
func ByContext[K comparable](name any) func(*http.Request) K {
	return func(r *http.Request) K { return fromContext[K](r.Context(), name) }
}

func fromContext[K comparable](ctx context.Context, name any) K {
	key, _ := ctx.Value(name).(K)
	return key
}

// Both combines two key functions: each pair of keys is a key of its own. Nothing is
// formatted or joined, so two different pairs are never equal. If either part is missing,
// so is the key.
func Both[A, B comparable](a func(*http.Request) A, b func(*http.Request) B) func(*http.Request) limits.Pair[A, B] {
	if a == nil || b == nil {
		return nil
	}
	return func(r *http.Request) limits.Pair[A, B] {
		var zero limits.Pair[A, B]
		pair := limits.Pair[A, B]{A: a(r), B: b(r)}
		if pair.A == zero.A || pair.B == zero.B {
			return zero
		}
		return pair
	}
}

// Join combines key functions for engines whose keys are strings. Each part is preceded by
// its length, so different parts never give the same key. If any part is missing, so is the
// key. [Both] does the same without making a string.
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

// ByString formats the keys of another key function, for engines whose keys are strings:
// httplimit.ByString(httplimit.ByAddr). A missing key stays missing. Each request formats
// its key; an engine with keys of the original type avoids that.
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
