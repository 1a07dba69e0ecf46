package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
)

// A key function, any func(*http.Request) K, finds the key of a request, or the zero value of K if
// there is none. A key function must be safe for concurrent use. It runs on the request's
// goroutine, and once more for a line of Options.Logger, or a turn (Options.Spread) under several
// limits. New refuses a nil key function. A combination with a nil key function is nil. The engine
// stores keys: bound their length if clients choose them.

// ByHeader returns a key function for the value of a header field, such as an API key, without
// spaces and tabs at its ends. A missing or empty field is no key. The first value of a repeated
// field counts, as for http.Header.Get; the handler should use the same. If name is no valid field
// name the function is nil.
//
// Values are not checked: a client may invent a new key for each request. Put this limit behind
// authentication, or a limit by address beside it. Values longer than 64 bytes are replaced by
// their SHA-256 hash, behind a byte that no header field can hold.
//
// "Host" is the host of Request.Host in lower case, without its port and a final dot. The client
// chooses it: limit by the host only if unknown hosts are refused before.
func ByHeader(name string) func(*http.Request) string {
	if !clientaddr.IsToken(name) {
		return nil
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		return func(request *http.Request) string { return clientaddr.Bounded(hostOf(request.Host)) }
	}
	return func(request *http.Request) string {
		values := request.Header[name]
		if len(values) == 0 {
			return ""
		}
		return clientaddr.Bounded(clientaddr.Trim(values[0]))
	}
}

// hostOf returns the host of an authority (RFC 9110, section 7.2) without its port and a final dot,
// in lower case (ASCII). An IPv6 address is in its shortest form.
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

// lower lowers ASCII letters only, as some other letters have an ASCII letter as lower case.
func lower(text string) string {
	buffer := []byte(text)
	for i, char := range buffer {
		if 'A' <= char && char <= 'Z' {
			buffer[i] = char + 'a' - 'A'
		}
	}
	return string(buffer)
}

// ByPattern returns a key function for the route: the pattern of http.ServeMux that the request
// matches, such as "GET /users/{id}". Unlike a path, clients cannot invent a route. All clients
// share a route's key: combine it with another by [Both]. A request that matches no pattern has no
// key.
//
// ByPattern takes the mux that the request reaches next: limit.Handler(mux) takes ByPattern(mux).
// This costs a second look for the route. That mux may itself be registered with an outer mux, also
// behind http.StripPrefix. A request that it redirects has the pattern of its target. A CONNECT
// request has no key, as the mux may answer with the path instead of a pattern.
//
// A nil mux stands for the last mux that the request came through, by Request.Pattern:
// mux.Handle(pattern, limit.Handler(handler)) takes ByPattern(nil). Join(ByPattern(nil),
// ByPattern(mux)) tells apart the places where an inner mux is registered.
func ByPattern(mux *http.ServeMux) func(*http.Request) string {
	if mux == nil {
		return func(request *http.Request) string { return request.Pattern }
	}
	return func(request *http.Request) string {
		if request.Method == http.MethodConnect {
			return ""
		}
		_, pattern := mux.Handler(request)
		return pattern
	}
}

// ByContext returns a key function for a value in the request's context under name, such as a user
// that an earlier middleware stored. Without a value of type K there is no key.
func ByContext[K comparable](name any) func(*http.Request) K {
	return func(request *http.Request) K { return fromContext[K](request.Context(), name) }
}

func fromContext[K comparable](ctx context.Context, name any) K {
	key, _ := ctx.Value(name).(K)
	return key
}

// Both combines two key functions into keys that are pairs. If a part is missing, so is the key.
func Both[A, B comparable](a func(*http.Request) A, b func(*http.Request) B) func(*http.Request) limits.Pair[A, B] {
	if a == nil || b == nil {
		return nil
	}
	return admission.Both(a, b)
}

// Join combines key functions of strings. Each part is preceded by its length, so different parts
// never give the same key. If a part is missing, so is the key. [Both] makes no string.
func Join(keys ...func(*http.Request) string) func(*http.Request) string {
	for _, key := range keys {
		if key == nil {
			return nil
		}
	}
	return func(request *http.Request) string {
		var joined strings.Builder
		for _, key := range keys {
			part := key(request)
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

// ByString formats the keys of another key function, as ByString(ByAddr). A missing key stays
// missing. An engine with keys of the original type is faster.
func ByString[K interface {
	comparable
	String() string
}](key func(*http.Request) K) func(*http.Request) string {
	if key == nil {
		return nil
	}
	return func(request *http.Request) string {
		var zero K
		if k := key(request); k != zero {
			return k.String()
		}
		return ""
	}
}
