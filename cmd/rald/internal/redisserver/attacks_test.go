package redisserver

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memory returns the bytes of heap and stacks in use after a collection, and the goroutines.
func memory() (bytes float64, goroutines int) {
	runtime.GC()
	runtime.GC() // a pool keeps its values over one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// Each connection needs at most the memory that docs/serving.md tells. Those that do nothing more
// end in time.
//
// Promise: Garbage, half commands, slow readers and idle connections end alone.
// Promise: Garbage, idle connections, half commands, slow readers and long pipelines leave nothing behind; others are answered.
func TestAttacksLeaveNothingBehind(t *testing.T) {
	limits := Config{Idle: time.Minute, Within: 10 * time.Second}
	inBubble(t, limits, func(t *testing.T, other *client) {
		left := int64(1000)
		serves := func(attack string) {
			t.Helper()
			start := time.Now()
			left--
			got := other.do("CL.THROTTLE victim 999 1 3600")
			require.Equal(t, ints(0, 1000, left), got.([]any)[:3], attack)
			assert.Zero(t, time.Since(start), attack)
		}
		for _, attack := range []struct {
			name    string
			clients int
			most    float64       // bytes of each
			ends    time.Duration // after which the server ends them, if an error does not
			text    string
		}{
			{"idle connections", 300, 32e3, limits.Idle, "PING\r\n"},
			{"half commands", 100, 256e3, limits.Within, "*1000\r\n$11\r\nCL.THROTTLE\r\n" + strings.Repeat("$4000\r\n"+strings.Repeat("x", 4000)+"\r\n", 15)},
			{"slow readers", 50, 256e3, limits.Within, strings.Repeat("*2\r\n$4\r\nECHO\r\n$4000\r\n"+strings.Repeat("x", 4000)+"\r\n", 50)},
			{"long pipelines", 8, 256e3, limits.Idle, strings.Repeat("CL.THROTTLE pipeline 9 1 1\r\n", 10_000)},
			{"many arguments", 100, 32e3, 0, "*1000000000\r\n"},
			{"a long argument", 100, 32e3, 0, "*2\r\n$3\r\nGET\r\n$9999999999\r\n"},
			{"an array in a command", 100, 32e3, 0, "*1\r\n*1\r\n"},
			{"TLS", 100, 32e3, 0, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n'\n"},
			{"pages of browsers", 100, 32e3, 0, "POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE browser 0 1 1\r\n"},
		} {
			before, goroutines := memory()
			start := time.Now()
			var conns []net.Conn
			for range attack.clients {
				conn := other.pipes.dial()
				conns = append(conns, conn)
				go func() { _, _ = io.WriteString(conn, attack.text) }()
				if attack.name != "slow readers" {
					go read(conn)
				}
			}
			synctest.Wait()
			during, _ := memory()
			t.Logf("%s: %.0f bytes each", attack.name, (during-before)/float64(attack.clients))
			assert.Less(t, (during-before)/float64(attack.clients), attack.most, attack.name)
			serves(attack.name)
			if attack.ends > 0 {
				time.Sleep(attack.ends - 1)
				other.clients(attack.clients+1, attack.name)
				serves(attack.name)
				time.Sleep(attack.ends/8 + 2)
			}
			other.clients(1, attack.name)
			assert.LessOrEqual(t, time.Since(start), attack.ends+attack.ends/8+1, attack.name)
			for _, conn := range conns {
				_ = conn.Close()
			}
			conns = nil
			synctest.Wait()
			after, still := memory()
			assert.Less(t, after-before, 2e6, "bytes after %s", attack.name)
			assert.LessOrEqual(t, still, goroutines, attack.name)
		}
		assert.Equal(t, int64(0), other.do("EXISTS browser"), "a command after an HTTP request was carried out")
	})
}

func read(conn net.Conn) {
	for some := make([]byte, 100); ; {
		if _, err := conn.Read(some); err != nil {
			return
		}
	}
}
