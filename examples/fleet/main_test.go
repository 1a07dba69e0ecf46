package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/child"
)

// asCommand, if it is set, has the test binary be the command.
const asCommand = "RAL_EXAMPLE_FLEET_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is for slow machines that do much else.
const patience = 5 * time.Minute

// command is the command as a user has started it.
type command struct {
	*child.Process
	cmd    *exec.Cmd
	url    string
	folder string // where its temporary files are
}

func prepare(t *testing.T, args ...string) (_ *exec.Cmd, folder string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	folder = t.TempDir()
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=yes", "TMPDIR="+folder)
	return cmd, folder
}

// begin starts the command. It ends with the test by Ctrl-C, which must leave nothing
// behind.
func begin(t *testing.T, args ...string) *command {
	t.Helper()
	cmd, folder := prepare(t, append(args, "-addr", "127.0.0.1:0")...)
	out, in := io.Pipe()
	var problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = in, &problems
	p, err := child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the command said: %s", problems.Bytes())
		}
	})
	go func() {
		<-p.Ended()
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	found := regexp.MustCompile(`http://\S+/`).FindString(line)
	require.NotEmpty(t, found, line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	c := &command{p, cmd, found, folder}
	t.Cleanup(func() {
		if p.Runs() {
			c.end(t, syscall.SIGINT)
		}
	})
	return c
}

// end ends the command in order, and sees that nothing is left.
func (c *command) end(t *testing.T, by os.Signal) {
	t.Helper()
	children := c.children(t)
	require.NoError(t, c.Signal(by))
	select {
	case <-c.Ended():
	case <-time.After(patience):
		t.Fatalf("%v does not end it", by)
	}
	assert.Zero(t, c.cmd.ProcessState.ExitCode(), "%v", c.cmd.ProcessState)
	for _, pid := range children {
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d is left", pid)
	}
	left, err := filepath.Glob(filepath.Join(c.folder, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// children are the processes that the command has started.
func (c *command) children(t *testing.T) []int {
	t.Helper()
	s := c.state(t, -1)
	var pids []int
	for _, pid := range []int{s.Redis.PID, s.Servers[0].PID, s.Servers[1].PID, s.Servers[2].PID} {
		if pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c *command) state(t *testing.T, after int) (s state) {
	t.Helper()
	answer, err := http.Get(c.url + "state?after=" + strconv.Itoa(after))
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&s))
	return s
}

// press does what a button of the page does, and returns what it is told.
func (c *command) press(t *testing.T, path string, form ...string) (status int, said string) {
	t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	answer, err := http.PostForm(c.url+path, values)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

func (c *command) must(t *testing.T, path string, form ...string) {
	t.Helper()
	status, said := c.press(t, path, form...)
	require.Equal(t, http.StatusNoContent, status, "%v: %s", form, said)
}

// until waits for a sample, of those to come, of which something holds.
func (c *command) until(t *testing.T, what string, holds func(sample) bool) {
	t.Helper()
	s := c.state(t, -1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		time.Sleep(tick / 2) // wall: between two looks
		after := -1
		if n := len(s.Samples); n > 0 {
			after = s.Samples[n-1].Seq
		}
		next := c.state(t, after)
		for _, each := range next.Samples {
			if holds(each) {
				return
			}
		}
		if len(next.Samples) > 0 {
			s = next
		}
	}
	said, err := json.MarshalIndent(c.state(t, s.Samples[0].Seq), "", " ")
	require.NoError(t, err)
	t.Fatalf("%s: not within %v; it is\n%s", what, patience, said)
}

const (
	exact = iota
	leased
	local
	open_
	closed
)

// answered counts the answers of all servers of a sample that were reached in that way.
func (s sample) answered(by int) (admitted, refused int64) {
	for _, each := range s.Servers {
		admitted += each.Admitted[by]
		refused += each.Refused[by]
	}
	return admitted, refused
}

// all reports whether something holds for all servers.
func (s sample) all(holds func(answers) bool) bool {
	for _, each := range s.Servers {
		if !holds(each) {
			return false
		}
	}
	return true
}

// Redis and a server are killed and come back, Redis stands still for a while, and the
// load goes elsewhere. Whatever happens, a count of the admitted from outside never
// exceeds the capacity and rate × time, in any stretch of time.
func TestTheLimitHolds(t *testing.T) {
	for mode, way := range map[string]int{"exact": exact, "leased": leased} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			// So slow a rate that a Redis which comes back empty would be noticed.
			const capacity, rate = 300, 30
			c := begin(t, "-mode", mode, "-outage", "closed", "-limit", "funnel 300, 300/10s", "-budget", "2s")
			works := func(s sample) bool {
				return s.all(func(a answers) bool { return a.Admitted[way]+a.Refused[way] > 0 && a.Refused[closed] == 0 })
			}
			c.must(t, "load", "pattern", "even", "demand", "600")
			c.until(t, "all burst", func(sample) bool { return c.state(t, -1).Total.Admitted >= capacity })
			c.must(t, "load", "pattern", "skewed", "demand", "600")
			c.until(t, "skewed", func(s sample) bool {
				n := func(i int) int64 { return s.Servers[i].Admitted[way] + s.Servers[i].Refused[way] }
				return n(0) > 2*n(1) && n(0) > 2*n(2) && n(1) > 0
			})

			c.must(t, "redis", "do", "kill")
			c.until(t, "no request passes without Redis", func(s sample) bool {
				admitted, refused := s.answered(closed)
				return admitted == 0 && refused > 0 && s.all(func(a answers) bool { return a.Admitted == [len(ways)]int64{} })
			})
			assert.Equal(t, "killed", c.state(t, -1).Redis.State)
			c.must(t, "server", "number", "2", "do", "kill")
			c.until(t, "a killed server answers nothing", func(s sample) bool {
				a := s.Servers[1]
				a.Lost = 0
				return a == answers{} && s.Servers[1].Lost > 0
			})
			assert.Equal(t, "killed", c.state(t, -1).Servers[1].State)
			c.must(t, "server", "number", "2", "do", "start")
			c.until(t, "a server starts without Redis", func(s sample) bool { return s.Servers[1].Refused[closed] > 0 })

			c.must(t, "redis", "do", "start")
			c.must(t, "load", "pattern", "even", "demand", "300")
			c.until(t, "Redis is back", works)
			c.until(t, "and admits", func(s sample) bool { n, _ := s.answered(way); return n > 0 })

			c.must(t, "redis", "do", "pause")
			c.until(t, "no request passes while Redis stands still", func(s sample) bool {
				_, refused := s.answered(closed)
				return s.Redis == "paused" && refused > 0 && s.all(func(a answers) bool { return a.Admitted == [len(ways)]int64{} })
			})
			c.must(t, "load", "pattern", "shifting", "demand", "300")
			c.must(t, "redis", "do", "resume")
			c.until(t, "Redis goes on", works)

			// A server dies with what it has leased, if anything.
			c.must(t, "server", "number", "1", "do", "kill")
			c.must(t, "server", "number", "1", "do", "start")
			c.until(t, "all work", works)

			// What a server leases and is told of too late is lost, which happens on a
			// busy machine. If so much of the burst was that too high a one would not be
			// noticed, there is another when the limit has filled up again.
			s := c.state(t, -1)
			for s.Total.Redis.Highest <= capacity*3/4 {
				c.must(t, "load", "pattern", "even", "demand", "0")
				time.Sleep(capacity / rate * time.Second) // wall: Redis's clock fills the limit
				c.must(t, "load", "pattern", "even", "demand", "600")
				before := s.Total.Admitted
				c.until(t, "all burst again", func(sample) bool { s = c.state(t, -1); return s.Total.Admitted-before >= capacity })
			}
			t.Logf("%+v in %d ms", s.Total, s.Now)
			assert.LessOrEqual(t, s.Total.Redis.Highest, int64(capacity))
			assert.LessOrEqual(t, s.Total.Redis.Admitted, s.Total.Redis.Most)
			assert.LessOrEqual(t, s.Total.Redis.Most, capacity+rate*s.Now/1000+1)
			assert.Equal(t, s.Total.Asked, s.Total.Admitted+s.Total.Refused+s.Total.Lost)
		})
	}
}

// Ctrl-C, and what a system sends that shuts down, end everything: see end.
func TestEndsEverything(t *testing.T) {
	t.Parallel()
	c := begin(t)
	require.Len(t, c.children(t), 1+servers)
	// Where the system can end them with the command, a Ctrl-C is for it alone, which ends
	// the others in order.
	for _, pid := range c.children(t) {
		if runtime.GOOS != "linux" {
			break
		}
		group, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		assert.Equal(t, pid, group)
	}
	// What stands still ends, too.
	c.must(t, "redis", "do", "pause")
	c.end(t, syscall.SIGTERM)
}

// When the command is killed, its servers end by themselves, and its Redis where the
// system sees to it.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := begin(t)
	children := c.children(t)
	require.Len(t, children, 1+servers)
	redis := children[0]
	c.Kill()
	t.Cleanup(func() {
		if !gone(redis) {
			_ = syscall.Kill(redis, syscall.SIGKILL)
		}
	})
	if runtime.GOOS != "linux" {
		children = children[1:]
	}
	for _, pid := range children {
		assert.Eventually(t, func() bool { return gone(pid) }, patience, 10*time.Millisecond, "process %d is left", pid)
	}
}

// A server starts without Redis. It ends when the process that started it is gone,
// which it notices by its standard input.
func TestServerAlone(t *testing.T) {
	t.Parallel()
	cmd, _ := prepare(t, serveCommand, "-at", "127.0.0.1:1", "-outage", "open")
	listens := make(chan string, 1)
	cmd.Stdout = &lines{to: func(line string) {
		if addr, found := strings.CutPrefix(line, addressLine); found {
			listens <- addr
		}
	}}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	p, err := child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	answer, err := http.Get("http://" + <-listens)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, "open", answer.Header.Get(byField))

	assert.True(t, p.Runs())
	require.NoError(t, stdin.Close())
	select {
	case <-p.Ended():
		assert.Zero(t, cmd.ProcessState.ExitCode())
	case <-time.After(patience):
		t.Error("it goes on alone")
	}
}

// gone reports whether a process has ended. It may stay a zombie: no process of ours
// waits for it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// What cannot be done is said, and other sites' pages can do nothing.
func TestButtons(t *testing.T) {
	t.Parallel()
	c := begin(t)
	for _, v := range []struct {
		path string
		form []string
		want string
	}{
		{"redis", []string{"do", "start"}, `"start" cannot be done to a Redis that is `},
		{"redis", []string{"do", "resume"}, `"resume" cannot be done to a Redis that is `},
		{"redis", []string{"do", "dance"}, `"dance" cannot be done to a Redis that is `},
		{"server", []string{"number", "1", "do", "start"}, `"start" cannot be done to a server that is `},
		{"server", []string{"number", "4", "do", "kill"}, `there is no server "4"`},
		{"server", []string{"number", "0", "do", "kill"}, `there is no server "0"`},
		{"load", []string{"pattern", "wild", "demand", "3"}, `-pattern "wild" is none of even, shifting, skewed`},
		{"load", []string{"pattern", "even", "demand", "-1"}, "a demand of -1 is not between 0 and 1e+06 a second"},
		{"load", []string{"pattern", "even", "demand", "NaN"}, "a demand of NaN is not between"},
		{"load", []string{"pattern", "even", "demand", "x"}, "invalid syntax"},
	} {
		status, said := c.press(t, v.path, v.form...)
		assert.Equal(t, http.StatusConflict, status, "%v", v)
		assert.Contains(t, said, v.want)
	}
	r, err := http.NewRequest(http.MethodPost, c.url+"redis?do=kill", nil)
	require.NoError(t, err)
	r.Header.Set("Origin", "http://elsewhere.example")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	assert.Equal(t, http.StatusForbidden, answer.StatusCode)
	assert.NotZero(t, c.state(t, -1).Redis.PID)
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		args []string
		want string
	}{
		{[]string{"-redis", "no-such-redis"}, "there is no no-such-redis here: install Redis (Debian, Ubuntu: apt-get install redis-server; "},
		{[]string{"-redis", "false"}, "false ended as soon as it was started"},
		{[]string{"-mode", "fast"}, `-mode "fast" is none of exact, leased`},
		{[]string{"-outage", "none"}, `-outage "none" is none of closed, open, share`},
		{[]string{"-limit", "100"}, `-limit: ral: limit "^100" at byte 0: want a limit: funnel, `},
		{[]string{"-limit", "funnel 0, 1/s"}, `-limit: ral: limit "funnel ^0, 1/s" at byte 7: capacity is 0, want 1 or more`},
		{[]string{"-limit", "window 5/s"}, `-limit "window 5/s" is not a funnel, such as funnel 100, 100/s`},
		{[]string{"-budget", "0s"}, `-budget "0s" is not a positive duration`},
		{[]string{"-addr", "nowhere"}, "nowhere"},
		{[]string{"leased"}, `"leased" is no flag`},
	} {
		cmd, folder := prepare(t, append([]string{"-addr", "127.0.0.1:0"}, v.args...)...)
		said, err := cmd.CombinedOutput()
		var failed *exec.ExitError
		require.ErrorAs(t, err, &failed, "%v", v.args)
		assert.Equal(t, 1, failed.ExitCode())
		assert.Contains(t, string(said), "fleet: ")
		assert.Contains(t, string(said), v.want)
		left, err := filepath.Glob(filepath.Join(folder, "*"))
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}
