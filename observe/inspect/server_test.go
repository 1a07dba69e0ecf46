package inspect_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/inspect"
)

// pipes listens for connections in memory.
type pipes struct {
	coming chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.coming:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.coming <- server
	return client
}

func listening(t *testing.T) *pipes {
	p := &pipes{coming: make(chan net.Conn), closed: make(chan struct{})}
	h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "api"})})
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(p) }()
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return p
}

// A foreign name may resolve to the server's address. The listening host is a valid name.
func TestOwnServerChecksItsName(t *testing.T) {
	name := "localhost.localdomain"
	if _, err := net.LookupHost(name); err != nil {
		name = "ip6-localhost"
	}
	l, err := inspect.Listen(name + ":0")
	if err != nil {
		t.Skip("this machine has one name for itself alone:", err)
	}
	h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "api"})})
	go func() { _ = h.Serve(l) }()
	c := &client{t: t, url: "http://" + l.Addr().String() + "/"}
	for host, want := range map[string]int{name: http.StatusOK, "localhost:7725": http.StatusOK, "evil.example:7725": http.StatusForbidden} {
		assert.Equal(t, want, c.send(http.MethodGet, "limits", "", "Host", host).status, host)
	}
}

// Slow to ask, to send a body, to read or to ask again.
func TestSlowClientsAreDropped(t *testing.T) {
	body := `{"limit":"api","key":"k"}`
	post := fmt.Sprintf("POST /key HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	get := "GET /uplot.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		sends string // a byte a second, after first
		first string
		reads bool
		most  time.Duration
	}{
		"nothing":         {most: 11 * time.Second, reads: true},
		"a slow field":    {first: "GET /limits HTTP/1.1\r\nX: ", sends: strings.Repeat("x", 100), most: 11 * time.Second, reads: true},
		"a slow body":     {first: post, sends: strings.Repeat(" ", 100), most: 16 * time.Second, reads: true},
		"reads nothing":   {first: get, most: 61 * time.Second},
		"asks once":       {first: get, reads: true, most: 71 * time.Second},
		"no more follows": {first: post + body[:3], reads: true, most: 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := listening(t).dial()
				defer conn.Close()
				began := time.Now()
				ended := make(chan struct{})
				if c.reads {
					go func() {
						_, _ = io.Copy(io.Discard, conn)
						close(ended)
					}()
				}
				_, _ = io.WriteString(conn, c.first)
				for i := range c.sends {
					time.Sleep(time.Second)
					if _, err := io.WriteString(conn, c.sends[i:i+1]); err != nil {
						break
					}
				}
				if !c.reads {
					time.Sleep(c.most) // the connection ends meanwhile
					n, err := io.Copy(io.Discard, conn)
					assert.NoError(t, err)
					assert.Less(t, n, int64(10_000), "the connection has ended")
					return
				}
				<-ended
				assert.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
}
