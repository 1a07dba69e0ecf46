package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A million take one to two minutes on two processors.
var connections = flag.Int("connections", 2_000, "the connections of TestAttacksWithProcesses that bring garbage")

// attacked is a rald with a client that is served during attacks.
type attacked struct {
	*whole
	t *testing.T
}

func startAttacked(t *testing.T, args ...string) *attacked {
	return &attacked{startWhole(t, append(args, wholeDirectory(t))...), t}
}

// dial connects from one of many addresses, each with at most 28,000 ports.
func (a *attacked) dial(to string) (*net.TCPConn, error) {
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+rand.IntN(200)))}
	c, err := (&net.Dialer{LocalAddr: from, Timeout: time.Minute}).Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	_ = tcp.SetLinger(0) // leaves no port in TIME_WAIT
	_ = tcp.SetDeadline(time.Now().Add(5 * time.Minute))
	return tcp, nil
}

func (a *attacked) figure(name string) float64 {
	a.t.Helper()
	_, text := fetch(a.t, http.DefaultClient, "http://"+a.admin+"/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.*)$`).FindStringSubmatch(text)
	require.NotNil(a.t, found, name)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(a.t, err)
	return value
}

// held returns the bytes of heap and stacks in use after a collection.
func (a *attacked) held() float64 {
	fetch(a.t, http.DefaultClient, "http://"+a.admin+"/debug/pprof/heap?gc=1")
	return a.figure("go_memstats_heap_alloc_bytes") + a.figure("go_memstats_stack_inuse_bytes")
}

// others waits until only the test's connections are left.
func (a *attacked) others(left int) {
	a.t.Helper()
	a.until(a.t, func() bool { return a.figure("rald_resp_connections") <= float64(left) })
}

// during calls f while another client takes unit after unit of a key, each with the right answer.
func (a *attacked) during(attack string, f func()) {
	a.t.Helper()
	c, err := net.Dial("tcp", a.addr)
	require.NoError(a.t, err)
	defer c.Close()
	over, served := make(chan struct{}), make(chan int)
	go func() {
		in, command := bufio.NewReader(c), fmt.Sprintf("CL.THROTTLE victim-of-%s 199999 1 2500\r\n", strings.ReplaceAll(attack, " ", "-"))
		for n := 0; ; n++ {
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, err := io.WriteString(c, command)
			if err == nil {
				err = wantLeft(in, 199_999-n)
			}
			assert.NoError(a.t, err, attack)
			select {
			case <-over:
				served <- n + 1
				return
			case <-time.After(time.Millisecond): // wall: the pace of a client
			}
		}
	}()
	f()
	close(over)
	a.t.Logf("%s: another client made %d calls", attack, <-served)
}

// wantLeft reads an admitting reply to CL.THROTTLE with that many units left.
func wantLeft(in *bufio.Reader, left int) error {
	var reply [6]string
	for i := range reply {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if reply[i] = strings.TrimSuffix(line, "\r\n"); i == 0 && reply[0] != "*5" {
			return fmt.Errorf("the reply is %q", line)
		}
	}
	if reply[1] != ":0" || reply[3] != fmt.Sprintf(":%d", left) {
		return fmt.Errorf("the reply is %q, want %d left", reply, left)
	}
	return nil
}

// garbage is text that no client sends. The server answers it, or waits for its end.
var garbage = []struct {
	text     string
	answered bool
}{
	{"*1000000000\r\n", true},
	{"*2\r\n$3\r\nGET\r\n$9999999999\r\n", true},
	{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n'\n", true},
	{"POST / HTTP/1.1\r\nHost: x\r\n\r\n", true},
	{"*3\r\n$11\r\nCL.THROTTLE\r\n:1\r\n", true},
	{"*3\r\n$11\r\nCL.THRO", false},
	{"", false},
	{strings.Repeat("\xff\x00", 100), false},
}

// bring brings garbage by n connections, a part of them to Envoy's service.
func (a *attacked) bring(n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				to := a.addr
				if i%16 == 0 {
					to = a.envoy
				}
				if !assert.NoError(a.t, a.garbled(int(i), to)) {
					return
				}
			}
		})
	}
	workers.Wait()
}

func (a *attacked) garbled(i int, to string) error {
	c, err := a.dial(to)
	if err != nil {
		return err
	}
	defer c.Close()
	of := garbage[i%len(garbage)]
	if _, err := io.WriteString(c, of.text); err != nil {
		return nil // the server was faster
	}
	if of.answered && to == a.addr {
		reply, err := io.ReadAll(c)
		if !bytes.HasPrefix(reply, []byte("-")) {
			return fmt.Errorf("%q is answered by %q and %w", of.text, reply, err)
		}
	}
	return nil
}

// Memory stays within its documented bounds.
//
// Promise: Garbage, idle connections, half commands, slow readers and long pipelines leave nothing behind; others are answered.
func TestAttacksWithProcesses(t *testing.T) {
	needs(t, "thousands of connections")
	a := startAttacked(t, "-state", "none", "-max-clients", "20000")
	a.during("nothing", func() {})
	a.others(0)
	idle, goroutines := a.held(), a.figure("go_goroutines")
	attack := func(name string, f func()) {
		t.Helper()
		a.during(name, f)
		a.others(0)
		a.until(t, func() bool { return a.figure("go_goroutines") <= goroutines+50 }) // gRPC ends its own later
		assert.LessOrEqual(t, a.held(), 32e6+idle, "bytes after %s", name)
	}
	attack("garbage", func() { a.bring(*connections) })
	assert.Greater(t, a.figure("rald_resp_garbled_connections_total"), 0.4*float64(*connections))
	attack("pipelines", a.pipelines)
	attack("idle connections", func() {
		const n = 10_000
		idling := a.hold(n, "")
		a.others(n + 1)
		empty := (a.held() - idle) / n
		for _, c := range idling {
			_, err := io.WriteString(c, "PING\r\n")
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, len("+PONG\r\n")))
			require.NoError(t, err)
		}
		used := (a.held() - idle) / n
		t.Logf("an idle connection needs %.0f bytes, and %.0f once it has sent a command", empty, used)
		assert.Less(t, used, 32e3)
		leave(idling)
	})
	attack("half commands", func() { // the end of a command of 64 KiB never comes
		half := "*1000\r\n$11\r\nCL.THROTTLE\r\n" + strings.Repeat("$4000\r\n"+strings.Repeat("x", 4000)+"\r\n", 15)
		halves := a.hold(1_000, half)
		held := a.held()
		t.Logf("half a command of %d bytes needs %.0f", len(half), (held-idle)/1_000)
		assert.Less(t, (held-idle)/1_000, 256e3)
		a.others(1)
		leave(halves)
	})
	attack("slow readers", a.slowReaders)
}

// hold opens connections that send the text and no more.
func (a *attacked) hold(n int, text string) (all []*net.TCPConn) {
	for range n {
		c, err := a.dial(a.addr)
		require.NoError(a.t, err)
		_, err = io.WriteString(c, text)
		require.NoError(a.t, err)
		all = append(all, c)
	}
	return all
}

func leave(all []*net.TCPConn) {
	for _, c := range all {
		_ = c.Close()
	}
}

// pipelines sends 10,000 commands at once from several clients, round after round.
func (a *attacked) pipelines() {
	const n, rounds = 10_000, 15
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c, err := a.dial(a.addr)
			if !assert.NoError(a.t, err) {
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			for round := range rounds {
				command := fmt.Sprintf("CL.THROTTLE pipeline%d.%d %d 1 10000\r\n", i, round, n-1)
				go func() { _, _ = io.WriteString(c, strings.Repeat(command, n)) }()
				for left := n - 1; left >= 0; left-- {
					if !assert.NoError(a.t, wantLeft(in, left)) {
						return
					}
				}
			}
		})
	}
	clients.Wait()
}

// slowReaders send commands and read no reply, until the server ends them.
func (a *attacked) slowReaders() {
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			c, err := a.dial(a.addr)
			if !assert.NoError(a.t, err) {
				return
			}
			defer c.Close()
			_ = c.SetReadBuffer(4 << 10)
			for err == nil {
				_, err = io.WriteString(c, "*2\r\n$4\r\nECHO\r\n$4000\r\n"+strings.Repeat("x", 4000)+"\r\n")
			}
			assert.False(a.t, errors.Is(err, os.ErrDeadlineExceeded), "the server let it go on for five minutes")
		})
	}
	clients.Wait()
}

// Memory and files are within the bounds of docs/serving.md.
func TestSizingWithProcesses(t *testing.T) {
	needs(t, "a million keys")
	const keys, families = 1_000_000, 16
	state := t.TempDir()
	a := startAttacked(t, "-state", state, "-save-every", "1h")
	empty, goroutines := a.held(), a.figure("go_goroutines")
	t.Logf("rald without keys: %.1f MB in memory", a.figure("process_resident_memory_bytes")/1e6)
	commands := a.client(t, redis.Options{})
	for i := range families {
		require.NoError(t, commands.Do(t.Context(), "RAL.TAKE", "k", fmt.Sprintf("window_5/%dh", i+2)).Err())
	}
	ofFamily := (a.held() - empty) / families
	t.Logf("a family of limits: %.0f KB, %.1f goroutines", ofFamily/1e3, (a.figure("go_goroutines")-goroutines)/families)
	assert.Less(t, ofFamily, 1e6)

	c, err := net.Dial("tcp", a.addr)
	require.NoError(t, err)
	defer c.Close()
	before := a.held()
	go func() {
		out := bufio.NewWriter(c)
		for i := range keys {
			_, _ = fmt.Fprintf(out, "CL.THROTTLE user:%015d 15 1 3600\r\n", i) // 20 bytes
		}
		_ = out.Flush()
	}()
	_, err = io.CopyN(io.Discard, c, int64(keys*len("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:3600\r\n")))
	require.NoError(t, err)
	ofKey := (a.held() - before) / keys
	t.Logf("a key of 20 bytes: %.0f bytes of %d keys", ofKey, keys)
	assert.EqualValues(t, keys+families, commands.DBSize(t.Context()).Val())
	assert.Less(t, ofKey, 400.0)

	a.end(t)
	files, err := filepath.Glob(filepath.Join(state, "funnel*.state"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	saved := float64(info.Size()) / keys
	t.Logf("a saved key: %.1f bytes", saved)
	assert.Less(t, saved, 60.0)
}
