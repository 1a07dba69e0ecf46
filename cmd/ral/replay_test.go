package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// onLog runs a command on a log at standard input.
func onLog(t *testing.T, log string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(log), &out, io.Discard)
	return out.String(), err
}

// accessLog has a busy key with 30 requests in three seconds and 10 keys with one each, one of them refused.
func accessLog(busy string) string {
	var b strings.Builder
	begin := time.Date(2026, 11, 29, 6, 37, 1, 0, time.UTC)
	for i := range 40 {
		key, status := busy, 200
		if i%4 == 3 {
			key = fmt.Sprint("192.0.2.", i)
			if i == 39 {
				status = 429
			}
		}
		fmt.Fprintf(&b, "%s - - [%s] \"GET / HTTP/1.1\" %d 1 \"-\" \"-\"\n", key, begin.Add(time.Duration(i/14)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), status)
	}
	return b.String()
}

// Promise: `ral replay` shows which requests and keys of an access log a limit would have refused, as text, JSON or a web page.
func TestReplayIsATable(t *testing.T) {
	text, err := onLog(t, accessLog("203.0.113.7")+"garbage\n", "replay", "-", "--limit", "funnel 10, 2/s")
	require.NoError(t, err)
	for _, part := range []string{
		"Replay of funnel 10, 2/s\n-: 41 lines, combined\n40 requests of 11 keys, from 2026-11-29 06:37:01 to 2026-11-29 06:37:03 UTC\n",
		`as logged +40 +16 +40% +1 +9.09% +funnel 10, 2/s`, `at least +40 +14`, `at most +40 +18`, `the log itself +40 +1 +2.5% +1`,
		`newly refused +16 +1\nnewly admitted +1 +1\n`,
		`06:37:02 +█+░+ +14 +\d+\n`,
		`Keys: refused most\n.*\n#[0-9a-f]{12} +30 +16 +53.3% +0\n`,
		"Not read: 1 line not in the log's form, the first at -:41.", "whole seconds", "no durations",
	} {
		assert.Regexp(t, part, text)
	}
	assert.NotContains(t, text, "203.0.113.7")
	crowded, err := onLog(t, accessLog("a"), "replay", "-", "--limit", "funnel 10, 2/s", "--max-keys", "1")
	require.NoError(t, err)
	assert.Contains(t, crowded, "\n30 requests of 1 key, from")
	assert.Contains(t, crowded, "Not replayed: 10 requests of new keys, since all known keys owed units or had requests in the window. See --max-keys.")
	again, err := onLog(t, accessLog("203.0.113.7"), "replay", "--limit", "funnel 10, 2/s", "-")
	require.NoError(t, err)
	assert.NotEqual(t, strings.Split(text, "#")[1][:12], strings.Split(again, "#")[1][:12], "each run has a secret of its own")

	text, err = onLog(t, accessLog("203.0.113.7"), "replay", "--show-keys", "--json", "--limit", "funnel 10, 2/s", "-", "--against", "at_most_5/s", "--retries")
	require.NoError(t, err)
	var d replayed
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	assert.Equal(t, "203.0.113.7", d.Result.Top[0].Key)
	assert.Equal(t, []string{"at most 5/s"}, d.Against)
	assert.Len(t, d.Result.Scenarios, 5)
	assert.Empty(t, d.Failed)
}

// Promise: No control character or markup of a log reaches the terminal or the web page.
func TestReplayEscapesKeys(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	hostile := "\x1b[2J<script>alert(1)</script>\u202e"
	text, err := onLog(t, accessLog(hostile), "replay", "-", "--show-keys", "--limit", "funnel 10, 2/s", "--html", page)
	require.NoError(t, err)
	shown, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, s := range []string{text, string(shown)} {
		assert.Contains(t, s, "?[2J")
		for _, r := range s {
			require.True(t, r == '\n' || r >= ' ' && r != 0x7f && r != 0x202e && (r < 0x80 || r > 0x9f), "%q", r)
		}
	}
	assert.NotContains(t, string(shown), "<script")
	assert.Contains(t, string(shown), "<rect")
	assert.NotContains(t, string(shown), "http:")
}

// Promise: `ral replay` fails with a status of its own if --fail-if holds.
func TestFailIfFailsTheReplayWhenItHolds(t *testing.T) {
	for condition, holds := range map[string]bool{
		"refused requests > 17": true, "refused requests > 18": false, "refused requests>=18": true, "refused requests > 44.9%": true, "refused requests > 45%": false,
		"newly refused keys > 9%": true, "newly refused keys > 9.1%": false, "newly refused requests >= 17": false, "newly admitted keys >= 1": true,
		"newly admitted requests > 1": false, "refused requests > 40": false, "refused keys > 0": true, "unreadable lines > 0": false,
	} {
		text, err := onLog(t, accessLog("a"), "replay", "-", "--limit", "funnel 10, 2/s", "--retries", "--fail-if", condition)
		if !holds {
			require.NoError(t, err, condition)
			continue
		}
		require.ErrorIs(t, err, errFailIf, condition)
		assert.Contains(t, text, "FAILED: ")
	}
	_, err := onLog(t, accessLog("a"), "replay", "-", "--limit", "funnel 10, 2/s", "--fail-if", "refused keys > 0", "--fail-if", "unreadable lines > 0")
	require.ErrorIs(t, err, errFailIf, "the first of two conditions holds")
}

// Promise: `ral replay --file --against` compares two files of limits on an access log, all limits or one by its name.
func TestReplayComparesFilesOfLimits(t *testing.T) {
	dir := t.TempDir()
	now, before := filepath.Join(dir, "limits.conf"), filepath.Join(dir, "limits.old.conf")
	empty := filepath.Join(dir, "empty.conf")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(now, []byte("address: funnel 10, 2/s\nlogin: at most 5/10m\n"), 0o600))
	require.NoError(t, os.WriteFile(before, []byte("address: funnel 20, 2/s\n    plan gold: funnel 100, 2/s\n"), 0o600))
	for _, c := range []struct{ file, against, title, want string }{
		{now + ":address", before, "Replay of funnel 10, 2/s\n", `against funnel 20, 2/s\n.*\nnewly refused +10 +1\nnewly admitted +0 +0\n`},
		{now, before + ":address", "Replay of funnel 10, 2/s and at most 5/10m\n", `newly refused +19 +1\n`},
		{now + ":login", "funnel 10, 2/s", "Replay of at most 5/10m\n", `against funnel 10, 2/s\n.*\nnewly refused +9 +1\n`},
	} {
		text, err := onLog(t, accessLog("a"), "replay", "-", "--file", c.file, "--against", c.against)
		require.NoError(t, err)
		assert.Contains(t, text, c.title)
		assert.Regexp(t, c.want, text)
	}
	for want, args := range map[string][]string{
		"has no limit \"user\"": {"--file", now + ":user"},
		empty + " has no limit": {"--file", empty},
		"no such file":          {"--file", now + ".new"},
		"flag -against: it is no file of limits, and as a limit: ral: limit \"^funel 1, 1/s\" at byte 0: want a limit: funnel": {"--file", now, "--against", "funel 1, 1/s"},
		"flag -against: it is no file of limits, and as a limit: ral: limit \"^nofile\" at byte 0: want":                       {"--file", now, "--against", "nofile"},
		"has no limit \"nobody\"": {"--file", now, "--against", before + ":nobody"},
	} {
		_, err := onLog(t, accessLog("a"), append([]string{"replay", "-"}, args...)...)
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), `limit ""`)
	}
}

// Promise: `ral replay` names each setting of a file of limits that it leaves out.
func TestSettingsThatAreLeftOutAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.conf")
	require.NoError(t, os.WriteFile(file, []byte("api: funnel 10, 2/s\n    per: user\n    plan gold: funnel 100, 2/s\n    candidate: funnel 9, 1/s\n    penalty: 5 in 1m, block 10m\n"+
		"login: at most 5/10m\n    shadow: yes\nplain: at most 9/10m\n    shadow: no\n    warn-at: 0.8\n"+
		"up: funnel 30, 10/s\n    reserved: funnel 9, 3/s\n    share gold: funnel 3, 1/s\n    ceiling gold: funnel 9, 4/s\n"), 0o600))
	text, err := onLog(t, accessLog("a"), "replay", "-", "--file", file, "--against", file+":login")
	require.NoError(t, err)
	for name, settings := range map[string]string{"api": "plan gold, candidate, penalty", "login": "shadow", "up": "reserved, share gold, ceiling gold"} {
		assert.Contains(t, text, "Left out of limit "+name+" in "+file+": "+settings+". The limit itself holds")
	}
	assert.NotContains(t, text, "limit plain")
}

// Promise: `ral replay --html` overwrites no log, and no file that is no web page.
func TestPageOverwritesNoLog(t *testing.T) {
	dir := t.TempDir()
	log, link, page, note := filepath.Join(dir, "log"), filepath.Join(dir, "link"), filepath.Join(dir, "page.html"), filepath.Join(dir, "note")
	require.NoError(t, os.WriteFile(log, []byte(accessLog("a")), 0o600))
	empty, shown := filepath.Join(dir, "empty"), filepath.Join(dir, "shown")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(shown, []byte(pageBegin), 0o600))
	require.NoError(t, os.WriteFile(note, []byte("note"), 0o600))
	require.NoError(t, os.Symlink(log, link))
	for _, c := range []struct{ target, file, want string }{
		{empty, empty, "which is a log that is read"}, {shown, shown, "which is a log that is read"}, {filepath.Join(dir, "none", "x.html"), log, "--html: open"},
		{log, "-", "which exists and is no web page"}, {note, log, "which exists and is no web page"}, {link, "-", "which exists and is no web page"}, {link, log, "which is a log that is read"}, {dir, log, "is a directory"}, {page, log, ""}, {page, log, ""},
	} {
		_, err := onLog(t, accessLog("a"), "suggest", "--html", c.target, c.file)
		if c.want != "" {
			assert.ErrorContains(t, err, c.want)
		}
		_, err = onLog(t, accessLog("a"), "replay", "--limit", "funnel 10, 2/s", "--html", c.target, empty, c.file)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, c.want)
		assert.ErrorContains(t, err, c.target)
	}
	assert.Equal(t, accessLog("a"), string(must.Get(os.ReadFile(log))))
	assert.Empty(t, must.Get(os.ReadFile(empty)))
	_, err := onLog(t, "", "replay", "--limit", "funnel 10, 2/s", "--html", filepath.Join(dir, "new.html"), empty)
	require.ErrorContains(t, err, "no request that can be replayed")
	assert.NoFileExists(t, filepath.Join(dir, "new.html"))
	assert.Equal(t, "note", string(must.Get(os.ReadFile(note))))
	assert.Contains(t, string(must.Get(os.ReadFile(page))), "<!DOCTYPE html>")
}

func TestJSONHasNoControlCharacters(t *testing.T) {
	hostile := "\x1b[2J\u009b\u202e\U000e0001\U0001f600\u2028<"
	text, err := onLog(t, accessLog(hostile), "replay", "-", "--show-keys", "--json", "--limit", "funnel 10, 2/s")
	require.NoError(t, err)
	for _, r := range text {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q", r)
	}
	var d replayed
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	assert.Equal(t, hostile, d.Result.Top[0].Key)
}

func TestTruncatedFileIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.gz")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, accessLog("a"))
	require.NoError(t, errors.Join(err, w.Close()))
	require.NoError(t, os.WriteFile(path, packed.Bytes()[:packed.Len()-1], 0o600))
	text, err := onLog(t, "", "replay", path, "--limit", "funnel 10, 2/s", "--fail-if", "unreadable lines > 0")
	require.ErrorIs(t, err, errFailIf)
	assert.Contains(t, text, "Not read: the end of "+path+", after 40 lines: the file is truncated, or other bytes follow its end.")
}

// Promise: A log without a readable request is an error, so that --fail-if accepts no log that was not read.
func TestLogsWithoutRequestsAreErrors(t *testing.T) {
	for log, want := range map[string]string{
		"": "the log has no request that can be replayed: -: 0 lines, of no form",
		"192.0.2.1 - - [yesterday] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n": "-: 1 line, combined\nNot read: 1 line without a readable time, the first at -:1.",
	} {
		for _, args := range [][]string{{"replay", "-", "--limit", "funnel 1, 1/s", "--fail-if", "refused keys > 0"}, {"suggest", "-"}} {
			text, err := onLog(t, log, args...)
			assert.ErrorContains(t, err, want)
			assert.Empty(t, text)
		}
	}
}

// Promise: `--duration-unit` accepts each unit that its error names.
func TestDurationUnitsAreAcceptedAsNamed(t *testing.T) {
	for _, unit := range []string{"s", "ms", "us", "ns", "1s", "1ms", "1us", "1ns"} {
		_, err := onLog(t, accessLog("a"), "replay", "-", "--limit", "at most 5/s", "--duration-unit", unit)
		assert.NoError(t, err, unit)
	}
}

func TestReplayTellsFaults(t *testing.T) {
	for want, args := range map[string][]string{
		"there is no log":       {},
		"there is no limit":     {"-"},
		"want a unit of time":   {"-", "--limit", "funnel 1, 1/x"},
		"want statuses such as": {"-", "--limit", "at most 5/s", "--refused-status", "busy"},
		"then > or >=":          {"-", "--limit", "at most 5/s", "--fail-if", "admitted keys > 2"},
		"the bound is 101%, want a percentage up to 100%": {"-", "--limit", "at most 5/s", "--fail-if", "refused keys > 101%"},
		"--window is 1ns":              {"-", "--limit", "at most 5/s", "--window", "1ns"},
		"no variable $name":            {"-", "--limit", "at most 5/s", "--key", "name"},
		"no such file":                 {"/nowhere/at/all", "--limit", "at most 5/s"},
		"flag provided but not define": {"-", "--colour"},
		`value "1m" for flag -duration-unit: want s, ms, us or ns`: {"-", "--duration-unit", "1m"},
		`value "5ms" for flag -duration-unit: want s, ms`:          {"-", "--duration-unit", "5ms"},
		`value "x" for flag -max-keys: want 1 or more`:             {"-", "--max-keys", "x"},
		`value "x" for flag -window: want a time of 1s to 24h`:     {"-", "--window", "x"},
		`value "" for flag -html: want the name of a file`:         {"-", "--html", ""},
		`value "-" for flag -html: want the name of a file`:        {"-", "--html", "-"},
		`value "" for flag -log-format: want variables`:            {"-", "--log-format", ""},
	} {
		_, err := onLog(t, accessLog("a"), append([]string{"replay"}, args...)...)
		assert.ErrorContains(t, err, want)
	}
}
