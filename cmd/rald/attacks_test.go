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
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A million take one to two minutes on two processors.
var connections = flag.Int("connections", 2_000, "the connections of TestAttacks that bring garbage")

// attacked is a rald with a client that is served during attacks.
type attacked struct {
	*server
	t            *testing.T
	admin, envoy string
}

func startAttacked(t *testing.T) *attacked {
	rules := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(rules, "shop.yaml"), []byte(rulesOf(2)), 0o600))
	a := &attacked{t: t, admin: freeAddr(t), envoy: freeAddr(t)}
	a.server = start(t, "-state", "none", "-max-clients", "20000", "-admin", a.admin, "-envoy", rules, "-envoy-listen", a.envoy)
	return a
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
	_, text := fetch(a.t, http.DefaultClient, "http://"+a.admin+"/metrics", "")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.*)$`).FindStringSubmatch(text)
	require.NotNil(a.t, found, name)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(a.t, err)
	return value
}

// held returns the bytes of heap and stacks in use after a collection.
func (a *attacked) held() float64 {
	fetch(a.t, http.DefaultClient, "http://"+a.admin+"/debug/pprof/heap?gc=1", "")
	return a.figure("go_memstats_heap_alloc_bytes") + a.figure("go_memstats_stack_inuse_bytes")
}

// others waits until only the test's connections are left.
func (a *attacked) others(left int) {
	a.t.Helper()
	a.until(a.t, func() bool { return a.figure("rald_resp_connections") <= float64(left) })
}

const beVictim = "TEST_RALD_VICTIM" // makes the test's program a client of that address

// during calls f while another process is served, and logs the times of its calls.
func (a *attacked) during(attack string, f func()) {
	a.t.Helper()
	cmd := exec.Command(os.Args[0], attack)
	cmd.Env = append(os.Environ(), beVictim+"="+a.addr)
	in, err := cmd.StdinPipe()
	require.NoError(a.t, err)
	var says logged
	cmd.Stdout, cmd.Stderr = &says, &says
	victim, err := child.Start(cmd)
	require.NoError(a.t, err)
	defer victim.Kill()
	began := time.Now()
	f()
	lasted := time.Since(began) // wall: only logged
	require.NoError(a.t, in.Close())
	<-victim.Ended()
	text, ok := strings.CutPrefix(says.String(), "served: ")
	require.True(a.t, ok, "%s: %s", attack, text)
	a.t.Logf("%s, %v: %s", attack, lasted.Round(time.Millisecond), strings.TrimSpace(text))
}

const victimCalls = 300 // least calls of a victim, even if the attack is over at once

// victim takes unit after unit until its input ends.
func victim(addr, key string) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.ReadAll(os.Stdin)
	}()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	command := fmt.Sprintf("CL.THROTTLE victim-of-%s 199999 1 2500\r\n", strings.ReplaceAll(key, " ", "-"))
	var took []time.Duration
	for left := 199_999; ; left-- {
		began := time.Now()
		_ = c.SetDeadline(began.Add(time.Minute))
		if _, err := io.WriteString(c, command); err != nil {
			return err
		}
		if err := wantLeft(in, left); err != nil {
			return err
		}
		took = append(took, time.Since(began)) // wall: only logged
		var enough <-chan struct{}
		if len(took) >= victimCalls {
			enough = ended
		}
		select {
		case <-enough:
			slices.Sort(took)
			at := func(share float64) time.Duration {
				return took[int(share*float64(len(took)-1))].Round(time.Microsecond)
			}
			fmt.Printf("served: %d calls of another client took p50 %v, p99 %v, p99.9 %v, at most %v\n",
				len(took), at(0.5), at(0.99), at(0.999), at(1))
			return nil
		case <-time.After(time.Millisecond): // wall: the pace of a client
		}
	}
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

// garbage returns text that no client sends, and whether the server answers.
func garbage(kind int) (text string, answered bool) {
	switch kind % 8 {
	case 0:
		return "*1000000000\r\n", true
	case 1:
		return "*2\r\n$3\r\nGET\r\n$9999999999\r\n", true
	case 2:
		return "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n'\n", true
	case 3:
		return "POST / HTTP/1.1\r\nHost: x\r\n\r\n", true
	case 4:
		return "*3\r\n$11\r\nCL.THROTTLE\r\n:1\r\n", true
	case 5:
		return "*3\r\n$11\r\nCL.THRO", false
	case 6:
		return "", false
	}
	return strings.Repeat("\xff\x00", 100), false
}

func (a *attacked) bring(n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for {
				i := left.Add(-1)
				if i < 0 {
					return
				}
				to := a.addr
				if i%16 == 0 {
					to = a.envoy
				}
				if err := a.garbled(int(i), to); !assert.NoError(a.t, err) {
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
	text, answered := garbage(i)
	if _, err := io.WriteString(c, text); err != nil {
		return nil // the server was faster
	}
	if answered && to == a.addr {
		reply, err := io.ReadAll(c)
		if !bytes.HasPrefix(reply, []byte("-")) {
			return fmt.Errorf("%q is answered by %q and %w", text, reply, err)
		}
	}
	return nil
}

// Memory stays within its documented bounds.
//
// Promise: Garbage, idle connections, half commands, slow readers and long pipelines leave nothing behind; others are answered.
func TestAttacks(t *testing.T) {
	a := startAttacked(t)
	a.during("nothing", func() {})
	a.others(0)
	idle, goroutines := a.held(), a.figure("go_goroutines")
	most := 32e6 + idle
	over := func(attack string) {
		t.Helper()
		a.others(0)
		a.until(t, func() bool { return a.figure("go_goroutines") <= goroutines+50 }) // gRPC ends its own later
		assert.LessOrEqual(t, a.held(), most, "bytes after %s", attack)
	}

	a.during("garbage", func() { a.bring(*connections) })
	over("garbage")
	assert.Greater(t, a.figure("rald_resp_garbled_connections_total"), 0.4*float64(*connections))

	rounds := 15
	if testing.Short() || race.Enabled {
		rounds = 2
	}
	a.during("pipelines", func() { a.pipelines(rounds) })
	over("pipelines")

	n := 10_000
	if testing.Short() || race.Enabled {
		n = 1_000
	}
	idling := a.hold(n, "")
	a.others(n)
	empty := (a.held() - idle) / float64(n)
	for _, c := range idling {
		_, err := io.WriteString(c, "PING\r\n")
		require.NoError(t, err)
	}
	for _, c := range idling {
		_, err := io.ReadFull(c, make([]byte, len("+PONG\r\n")))
		require.NoError(t, err)
	}
	used := (a.held() - idle) / float64(n)
	t.Logf("an idle connection needs %.0f bytes, and %.0f once it has sent a command", empty, used)
	assert.Less(t, used, 32e3)
	a.during("idle connections", func() {})
	leave(idling)
	over("idle connections")

	if testing.Short() {
		return // the rest lasts as long as the server is patient
	}
	// The end of a command of 64 KiB never comes.
	half := "*1000\r\n$11\r\nCL.THROTTLE\r\n" + strings.Repeat("$4000\r\n"+strings.Repeat("x", 4000)+"\r\n", 15)
	a.during("half commands", func() {
		halves := a.hold(1_000, half)
		held := a.held()
		t.Logf("half a command of %d bytes needs %.0f", len(half), (held-idle)/1_000)
		assert.Less(t, (held-idle)/1_000, 256e3)
		a.others(1)
		leave(halves)
	})
	over("half commands")

	a.during("slow readers", func() { a.slowReaders(100) })
	over("slow readers")
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
func (a *attacked) pipelines(rounds int) {
	const n = 10_000
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
func (a *attacked) slowReaders(n int) {
	var clients sync.WaitGroup
	for range n {
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
