package sidebyside

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// client sends a request and returns the status. One goroutine at a time uses it.
type client func() (status int, err error)

// quiet is a ResponseWriter that costs nothing, so that the cost of a middleware shows.
type quiet struct {
	h      http.Header
	status int
}

func (q *quiet) Header() http.Header         { return q.h }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(status int)      { q.status = status }

// caller calls the handler with the requests in order, from first on.
func caller(h http.Handler, requests []*http.Request, first int) client {
	w, i := &quiet{h: http.Header{}}, first
	return func() (int, error) {
		clear(w.h)
		w.status = http.StatusOK
		h.ServeHTTP(w, requests[i%len(requests)])
		i++
		return w.status, nil
	}
}

func clientRequests(n int) []*http.Request {
	requests := make([]*http.Request, n)
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		requests[i].RemoteAddr = fmt.Sprintf("10.0.%d.%d:4711", i/250, i%250+1)
	}
	return requests
}

func serve(tb testing.TB, h http.Handler) (addr string) {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	tb.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// connect returns a client with its own open connection.
func connect(tb testing.TB, addr string) client {
	conn, err := net.Dial("tcp", addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	return func() (int, error) { return exchange(conn, in) }
}

var request = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")

// exchange sends a request and returns the status, with as little work as possible.
func exchange(conn net.Conn, in *bufio.Reader) (status int, err error) {
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	for length := 0; ; {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		const name, proto = "Content-Length: ", "HTTP/1.1 "
		switch {
		case status == 0:
			if len(line) < len(proto)+3 {
				return 0, fmt.Errorf("no status in %q", line)
			}
			if status, err = strconv.Atoi(string(line[len(proto) : len(proto)+3])); err != nil {
				return 0, err
			}
		case len(line) > len(name) && string(line[:len(name)]) == name:
			if length, err = strconv.Atoi(string(line[len(name) : len(line)-2])); err != nil {
				return 0, err
			}
		case len(line) <= 2:
			_, err := in.Discard(length)
			return status, err
		}
	}
}
