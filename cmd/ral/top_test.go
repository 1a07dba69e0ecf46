package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
)

func top(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"top", "-once"}, args...), nil, &out, io.Discard)
	return out.String(), err
}

// Promise: `ral top` shows the page's lists, live or as text.
func TestOnceIsATable(t *testing.T) {
	s := observetest.Start(t, inspect.Config{ShowKeys: true})
	s.Load()
	require.NoError(t, s.API.Block("modest", time.Hour))
	for _, url := range []string{s.URL, strings.TrimSuffix(s.URL, "/"), strings.TrimPrefix(s.URL, "http://"), s.URL + "?x=1#api"} {
		text := must.Get(top(t, url))
		for _, part := range []string{
			"4 limits", "> +api +funnel 10, 1/h", // the first that lists keys is chosen
			"api: owes most, of 2 keys\n(.*\n)+glutton +100% +0 (.*\n)+modest +30% +7 +60m +3h +for 60m *\n",
			"api: is refused most, of 300 refusals",
		} {
			assert.Regexp(t, part, text)
		}
		assert.NotContains(t, text, "root")
	}
	text := must.Get(top(t, "-limit", "logins", "-n", "1", s.URL))
	assert.Contains(t, text, "root")
	assert.NotContains(t, text, "glutton")
	text = must.Get(top(t, "-limit", "all", s.URL))
	assert.NotContains(t, text, "owes most", "it has no keys")

	hashed := observetest.Start(t, inspect.Config{})
	hashed.Load()
	text = must.Get(top(t, hashed.URL))
	assert.NotContains(t, text, "glutton")
	assert.Contains(t, text, "\n#")
	assert.Contains(t, text, "keys shown as hashes")
}

// Promise: The lists of a limit of calls at once say what is in use, and when it is free at the latest.
func TestListsOfALimitInFlight(t *testing.T) {
	exports := must.Get(engine.New[string](engine.Config{Name: "exports", Policy: must.Get(policy.Parse("in flight 10, 1h at most"))}))
	defer exports.Close()
	h := must.Get(inspect.New(inspect.Config{ShowKeys: true}, inspect.Limit[string]{Limiter: exports}))
	defer h.Close()
	server := httptest.NewServer(h)
	defer server.Close()
	for range 11 {
		exports.Reserve("tenant", 1, 0)
	}
	for range 4 {
		exports.Reserve("other", 1, 0)
	}
	text := must.Get(top(t, server.URL))
	assert.Regexp(t, `exports: has most in use, of 2 keys\nKEY +IN USE +REMAINING +NEXT UNIT WITHIN +ALL FREE WITHIN +BLOCKED\n`+
		`tenant +100% +0 +\d+m +\d+m\nother +40% +6 +\d+m +\d+m\n`, text)
	assert.Regexp(t, `exports: is refused most, of 1 refusal .*\n.*\ntenant +1 `, text)
}

// Promise: No control character from keys or servers reaches the terminal.
func TestTextHasNoControlCharacters(t *testing.T) {
	s := observetest.Start(t, inspect.Config{ShowKeys: true})
	s.API.Take("\x1b[2J\x1b]0;title\x07\u202e", 5)
	s.API.Take("日本語"+strings.Repeat("x", 500), 4)
	text := must.Get(top(t, s.URL))
	clean := func(text string) {
		t.Helper()
		for _, r := range text {
			require.True(t, r == '\n' || r >= ' ' && r != 0x7f && r != 0x202e && (r < 0x80 || r > 0x9f), "%q", r)
		}
	}
	clean(text)
	assert.Contains(t, text, "日本語xxx")

	hostile := view{chosen: "\x1b[31m", overview: pagejson.Overview{Health: "\x1b[31m", Limits: []pagejson.LimitSummary{{Name: "\x1b[31m", Policy: "\x9b", Health: "\r\n\x07"}}}}
	hostile.owed = pagejson.List{Limit: "x", Rows: []pagejson.Row{{ID: "\x1b\x1b", Share: 1e300}, {Key: "\x1b[0m"}, {}}}
	hostile.refused = pagejson.List{Rows: []pagejson.Row{{}}}
	clean(hostile.text(0, 0))
	clean(hostile.text(10, 0))
}

func TestFaultsAreTold(t *testing.T) {
	s := observetest.Start(t, inspect.Config{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/huge") {
			_, _ = w.Write(bytes.Repeat([]byte(" "), 40<<20))
		}
		fmt.Fprint(w, "<html>")
	}))
	t.Cleanup(other.Close)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{s.URL, s.URL}, "want one URL"},
		{[]string{"-n", "-1", s.URL}, "want 0 to 200"},
		{[]string{s.URL, "-n", "201"}, "want 0 to 200"},
		{[]string{s.URL, "-once", "-nothing"}, "not defined"},
		{[]string{"-every", "1ms", s.URL}, "want 100ms or more"},
		{[]string{"-nothing", s.URL}, "not defined"},
		{[]string{"ftp://localhost/"}, "want the page's"},
		{[]string{"http://"}, "want the page's"},
		{[]string{"-limit", "none", s.URL}, `there is no limit "none"`},
		{[]string{other.URL}, "is package inspect mounted there?"},
		{[]string{other.URL + "/huge"}, "is package inspect mounted there?"},
		{[]string{strings.Replace(s.URL, "/debug/ral/", "/other/", 1)}, "404 Not Found"},
		{[]string{"http://127.0.0.1:1/"}, "refused"},
	} {
		_, err := top(t, c.args...)
		require.ErrorContains(t, err, c.want, "%v", c.args)
	}
	require.Error(t, run(t.Context(), nil, nil, io.Discard, io.Discard))
	require.ErrorIs(t, run(t.Context(), []string{"help"}, nil, io.Discard, io.Discard), flag.ErrHelp)
}

func TestURLHasADefaultAndMayComeFirst(t *testing.T) {
	for line, want := range map[string]settings{
		"-once":                       {url: "http://localhost:7725/", every: 2 * time.Second, once: true, rows: 10},
		"-n 3 there -once -limit api": {url: "there", every: 2 * time.Second, once: true, rows: 3, limit: "api"},
	} {
		s := must.Get(parse(strings.Fields(line), io.Discard))
		want.pause = s.pause
		assert.Equal(t, want, s)
	}
}

// screenOf returns a screen of a program's page.
func screenOf(t *testing.T, p observetest.Program, options settings) *screen {
	t.Helper()
	c := must.Get(newClient(p.URL))
	options.every = time.Second
	return &screen{ctx: t.Context(), client: c, settings: options}
}

// do runs a command of the screen and its consequences, except pauses.
func (s *screen) do(c tea.Cmd) (quit bool) {
	if c == nil {
		return false
	}
	switch m := c().(type) {
	case tea.QuitMsg:
		return true
	case due:
		return false
	default:
		_, next := s.Update(m)
		if _, ok := m.(looked); ok && !s.looking {
			return false // next is a pause
		}
		return s.do(next)
	}
}

// send sends a message, and waits for its consequences and for the walk through the keys.
func (s *screen) send(m tea.Msg) (quit bool) {
	_, next := s.Update(m)
	quit = s.do(next)
	for s.view.owed.Pending && !s.looking {
		time.Sleep(10 * time.Millisecond)
		_, next := s.Update(due{})
		s.do(next)
	}
	return quit
}

func press(key string) tea.KeyPressMsg { return tea.KeyPressMsg{Code: rune(key[0]), Text: key} }

var down, up = tea.KeyPressMsg{Code: tea.KeyDown}, tea.KeyPressMsg{Code: tea.KeyUp}

func TestScreenFollowsKeysAndTime(t *testing.T) {
	st := observetest.Start(t, inspect.Config{ShowKeys: true})
	st.Load()
	s := screenOf(t, st, settings{rows: 10})
	assert.Contains(t, s.text(), "Looking.")
	s.do(s.Init())
	s.send(due{})
	assert.Contains(t, s.text(), "glutton")
	assert.True(t, s.View().AltScreen)

	s.send(down)
	assert.Contains(t, s.text(), "root")
	assert.NotContains(t, s.text(), "glutton")
	s.send(down)
	assert.Equal(t, "tried", s.view.chosen)
	s.send(down)
	assert.Equal(t, "all", s.view.chosen, "after the last comes the first")
	s.send(up)
	s.send(up)
	assert.Equal(t, "logins", s.view.chosen)
	s.send(press("k"))
	assert.Equal(t, "api", s.view.chosen)

	// The lists are current.
	st.API.Take("late", 9)
	assert.NotContains(t, s.text(), "late")
	for !strings.Contains(s.text(), "late") { // the handler serves the same list again for a while
		time.Sleep(50 * time.Millisecond)
		s.send(due{})
	}

	look := s.look()
	_, none := s.Update(down)
	assert.Nil(t, none)
	s.do(look)
	assert.Equal(t, "logins", s.view.chosen)
	assert.Contains(t, s.text(), "root")

	s.send(tea.WindowSizeMsg{Width: 30, Height: 8})
	lines := strings.Split(s.text(), "\n")
	assert.LessOrEqual(t, len(lines), 8)
	for _, line := range lines[:6] {
		assert.LessOrEqual(t, len([]rune(line)), 30)
	}

	s.client.base.Path = "/gone/"
	s.send(due{})
	assert.Contains(t, s.text(), "404")
	assert.Contains(t, s.text(), "limits")
	assert.True(t, s.send(press("q")))
}

// Without -n a list has as many keys as fit, and a terminal that is too low says so.
func TestScreenIsFilled(t *testing.T) {
	st := observetest.Start(t, inspect.Config{ShowKeys: true})
	for i := range 60 {
		st.API.Take(fmt.Sprintf("owes-%02d", i), 5)
	}
	s := screenOf(t, st, settings{})
	for height, keys := range map[int]int{50: 35, 24: 9, 10: 0} { // of 50 lines 4 are of limits, 9 are heads, 2 the foot
		s.send(tea.WindowSizeMsg{Width: 200, Height: height})
		text := s.text()
		assert.LessOrEqual(t, strings.Count(text, "\n"), height-1)
		assert.Equal(t, height < 12, strings.Contains(text, "More lines do not fit"), text)
		assert.True(t, keys == 0 || keys == strings.Count(text, "owes-"), text)
	}
}

// Both lists have rows, the chosen limit is shown, and figures have room beside long keys.
func TestTextFitsTheTerminal(t *testing.T) {
	const long = "customer-0123456789-0123456789-0123456789-01"
	v := view{chosen: "limit-9", owed: pagejson.List{Limit: "limit-9"}, refused: pagejson.List{Limit: "limit-9"}}
	for i := range 11 {
		v.overview.Limits = append(v.overview.Limits, pagejson.LimitSummary{
			Name: fmt.Sprint("limit-", i), Policy: "funnel 1000000000, 1000000000/h", Health: strings.Repeat("it is degraded ", 4),
		})
	}
	for i := range 20 {
		v.owed.Rows = append(v.owed.Rows, pagejson.Row{Key: fmt.Sprint("o", i, long), Blocked: 60, Full: 60, Share: 1})
		v.refused.Rows = append(v.refused.Rows, pagejson.Row{Key: fmt.Sprint("r", i, long), Blocked: 60, Refused: 5})
	}
	for _, size := range []struct{ width, height int }{{80, 32}, {80, 24}, {60, 15}, {200, 50}, {80, 100}} {
		text := v.text(size.width, size.height)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		require.LessOrEqual(t, len(lines), size.height)
		owed, refused := 0, 0
		for _, line := range lines {
			assert.LessOrEqual(t, runewidth.StringWidth(line), size.width)
			if row := regexp.MustCompile(`^([or])\d`).FindString(line); row != "" {
				assert.True(t, size.width < 80 || strings.HasSuffix(line, "for 60s"), "%v: %s", size, line)
				owed += strings.Count(row, "o")
				refused += strings.Count(row, "r")
			}
		}
		assert.Positive(t, owed, size)
		assert.InDelta(t, owed, refused, 1, size)
		assert.Positive(t, refused, size)
		assert.Contains(t, text, ">  limit-9")
		assert.Contains(t, text, "11 limits")
		assert.True(t, size.height <= 32 || !strings.Contains(text, "shown"), size)
		assert.True(t, size.height >= 20 || strings.Contains(text, "1 shown"), size)
	}
	v.owed.Rows = v.owed.Rows[:1]
	for i := range v.overview.Limits {
		v.overview.Limits[i].Health = ""
	}
	assert.Equal(t, 9, strings.Count(v.text(80, 30), "\nr"))
}

// Promise: `ral top` begins with the faults of the limits, each whole, and never cuts a limit's HEALTH away.
func TestFaultsAreWholeInANarrowTerminal(t *testing.T) {
	const cause = "Redis could not be asked: the last calls failed: dial tcp 10.0.0.17:6379: connect: connection refused"
	v := view{overview: pagejson.Overview{Limits: []pagejson.LimitSummary{
		{Name: "addresses", Policy: "funnel 1000000, 1000000/h", Figures: map[string]any{"Admitted": 1.0, "Keys": 1000000.0}, Points: []pagejson.Point{{Admitted: 1e5, Refused: 5}}},
		{Name: "keys", Policy: "funnel 10, 10/s", Health: cause, Alarms: []pagejson.Alarm{{Words: cause}, {Words: "refuses", ID: "0123", Key: "ann"}}},
	}}}
	for _, c := range []struct {
		width    int
		has, not []string
	}{
		{80, []string{"POLICY", "KEYS", "ADMITTED/S", "REFUSED/S"}, nil},
		{60, []string{"KEYS", "ADMITTED/S", "REFUSED/S"}, []string{"POLICY"}},
		{50, []string{"ADMITTED/S", "REFUSED/S"}, []string{"POLICY", "KEYS"}},
		{40, []string{"REFUSED/S"}, []string{"POLICY", "KEYS", "ADMITTED/S"}},
		{25, nil, []string{"POLICY", "KEYS", "ADMITTED/S", "REFUSED/S"}},
	} {
		text := v.text(c.width, 40)
		lines := strings.Split(text, "\n")
		assert.True(t, strings.HasPrefix(text, "Something is wrong with "), text)
		for _, line := range lines {
			assert.LessOrEqual(t, runewidth.StringWidth(line), c.width)
		}
		blank := slices.Index(lines, "")
		assert.Equal(t, "keys: "+cause+"; refuses, most often ann", strings.Join(lines[1:blank], " "), "between words, at %d columns", c.width)
		head := lines[blank+1]
		assert.Contains(t, head, "HEALTH")
		assert.True(t, strings.HasSuffix(lines[blank+2], "  ok") && strings.HasSuffix(lines[blank+3], "  wrong"), text)
		for _, name := range c.has {
			assert.Contains(t, head, name, c.width)
		}
		for _, name := range c.not {
			assert.NotContains(t, head, name, c.width)
		}
	}
	v.overview.Limits[1].Alarms[1].Words = "abcdefghijklmnopqrstuvwxyz"
	assert.Contains(t, v.text(16, 0), "\nabcdefghijklmnop\nqrstuvwxyz, most\n", "a word is broken if it is too wide")
	v.overview.Limits[1].Alarms = nil
	assert.Contains(t, v.text(0, 0), "\nkeys: "+cause+"\n", "of an earlier version")
	assert.Contains(t, v.text(20, 8), "\nkeys: Redis could\n(More lines do not …\n", "a low terminal has room for limits")
	v.overview.Limits[1].Health = ""
	assert.True(t, strings.HasPrefix(v.text(50, 0), "Nothing is wrong."))
	v.overview.Health = "limits.conf:1: a: " + cause
	assert.Contains(t, v.text(0, 0), "\nconfiguration: limits.conf:1: a: "+cause+"\n", "before the limits")
}

// Promise: `ral top` lists the limits that are wrong first, and the keys of the first of them, unless another one is chosen.
func TestListsAreOfTheLimitInTrouble(t *testing.T) {
	wrong := []pagejson.Alarm{{Words: "refuses"}}
	overview := pagejson.Overview{Limits: []pagejson.LimitSummary{
		{Name: "remote", Alarms: wrong}, {Name: "calm", Lists: true}, {Name: "api", Lists: true, Alarms: wrong}, {Name: "other", Lists: true, Alarms: wrong},
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := any(overview)
		if r.URL.Path == "/keys" {
			answer = pagejson.List{Limit: r.URL.Query().Get("limit")}
		}
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	defer server.Close()
	c := must.Get(newClient(server.URL))
	listed := func(limit string) string {
		v := must.Get(c.look(t.Context(), limit, 10))
		return v.chosen + " " + v.owed.Limit + " " + v.refused.Limit
	}
	assert.Equal(t, "api api api", listed(""))
	assert.Equal(t, "calm calm calm", listed("calm"))
	assert.Equal(t, "remote  ", listed("remote"), "it has no lists")
	var names []string
	for _, l := range must.Get(c.look(t.Context(), "", 10)).overview.Limits {
		names = append(names, l.Name)
	}
	assert.Equal(t, []string{"remote", "api", "other", "calm"}, names)
	overview.Limits[2].Alarms, overview.Limits[3].Alarms = nil, nil
	assert.Equal(t, "calm calm calm", listed(""))
}

// lists serves a limit. owed returns its list by the number of calls.
func lists(t *testing.T, owed func(asked int32) pagejson.List) (url string, asked *atomic.Int32) {
	asked = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := any(pagejson.Overview{Limits: []pagejson.LimitSummary{{Name: "api", Lists: true}}})
		switch r.URL.Query().Get("by") {
		case "owed":
			answer = owed(asked.Add(1))
		case "refused":
			answer = pagejson.List{Limit: "api"}
		}
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// A pending list is reported, and awaited by -once, for a while or until it is interrupted.
func TestListsThatTakeLong(t *testing.T) {
	url, asked := lists(t, func(asked int32) pagejson.List {
		return pagejson.List{Limit: "api", Total: 1, Age: 75, Pending: asked < 4}
	})
	c := must.Get(newClient(url))
	assert.Contains(t, must.Get(c.look(t.Context(), "", 10)).text(0, 0), "the keys are being gone through")
	assert.Contains(t, must.Get(top(t, url)), "owes most, of 1 key, 75s ago")
	assert.Equal(t, int32(4), asked.Load())

	ctx, interrupt := context.WithCancel(t.Context())
	url, asked = lists(t, func(asked int32) pagejson.List {
		if asked > maxLooks {
			interrupt()
		}
		return pagejson.List{Limit: "api", Pending: true}
	})
	c = must.Get(newClient(url))
	require.ErrorContains(t, once(t.Context(), c, settings{rows: 10}, io.Discard), "still being gone through")
	assert.Equal(t, int32(maxLooks), asked.Load())
	var out strings.Builder
	require.NoError(t, run(ctx, []string{"top", "-once", url}, nil, &out, io.Discard))
	assert.Empty(t, out.String())
}

func TestWatchShowsTheListsAndEnds(t *testing.T) {
	st := observetest.Start(t, inspect.Config{ShowKeys: true})
	st.Load()
	in, typed := io.Pipe()
	out, shown := io.Pipe()
	ended := make(chan error, 1)
	c := must.Get(newClient(st.URL))
	go func() {
		ended <- watch(t.Context(), c, settings{rows: 10, every: 100 * time.Millisecond}, shown, tea.WithInput(in), tea.WithWindowSize(120, 40))
		shown.Close()
	}()
	var seen strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(seen.String(), "glutton") {
		n, err := out.Read(buffer)
		require.NoError(t, err, "%q", seen.String())
		seen.Write(buffer[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	must.Get(typed.Write([]byte("q")))
	require.NoError(t, <-ended)
}

func TestLooksAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{ctx: t.Context(), settings: settings{every: 3 * time.Second}}
		began := time.Now()
		_, pause := s.Update(looked{err: errors.New("none")})
		assert.Equal(t, due{}, pause())
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}
