package inspect_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/inspect"
)

var crowd = sync.OnceValue(func() *engine.Engine[int] {
	e, err := engine.New[int](engine.Config{Name: "api", Policy: hourly, MaxKeys: 1 << 21})
	if err != nil {
		panic(err)
	}
	for i := range 1_000_000 {
		e.Take(i, 1+int64(i%10))
	}
	return e
})

// The page's requests, with a million keys. A list's first page is cached: vary the number of rows.
func BenchmarkAMillionKeys(b *testing.B) {
	h := newHandler(b, inspect.Config{}, inspect.Limit[int]{Limiter: crowd()})
	for name, path := range map[string]string{
		"limits":  "limits",
		"refused": "keys?limit=api&by=refused",
		"owed":    "keys?limit=api&by=owed&n=20",
	} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				at := path
				if name == "owed" && i%2 == 0 {
					at += "0"
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://server/"+at, nil))
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}
