package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: `ral suggest` shows limits that few keys of an access log exceed, and how many keys each capacity and rate refuses, as text, JSON or a web page.
func TestSuggestIsATable(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	text, err := onLog(t, accessLog("203.0.113.7")+"garbage\n", "suggest", "-", "--refuse-at-most", "1 key", "--html", page)
	require.NoError(t, err)
	for _, part := range []string{
		"Suggested limits\n-: 41 lines, combined\n40 requests of 11 keys, from",
		"Limits: for 11 keys, of which at most 1 may be refused\n", `funnel 1, 10/s +1 +9.09% +none\n`, `window 1/h aligned +1 +9.09% +none\n`,
		` RATE +50% +90% +99% +99.9% +100%\n`, ` 2/s +1 +1 +26 +26 +26\n`, `CAPACITY +1/s +2/s`, ` 16 +1 +1 +1 +0`, `\n8 +█+░+ +11 +1\n16 +░+ +11 +0\n`,
		"Not read: 1 line not in the log's form", "whole seconds", "The log has 2s.",
	} {
		assert.Regexp(t, part, text)
	}
	assert.NotContains(t, text, "in flight 1", "a log without durations does not tell it")
	assert.NotContains(t, text, "203.0.113.7")
	shown, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(shown), "funnel 1, 10/s")

	text, err = onLog(t, accessLog("a"), "suggest", "--json", "-", "--rate", "2/s", "--refuse-at-most", "0%", "--period", "1s", "--period", "1d")
	require.NoError(t, err)
	var d suggested
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	require.Len(t, d.Plans, 1)
	var limits []string
	for _, s := range d.Plans[0].Limits {
		limits = append(limits, s.Limit)
		assert.Zero(t, s.Refused)
	}
	assert.Equal(t, "funnel 26, 2/s", limits[0])
	assert.Contains(t, limits, "window 30/1d")
	replayed, err := onLog(t, accessLog("a"), "replay", "-", "--limit", limits[0], "--fail-if", "refused keys > 0")
	assert.ErrorIs(t, err, errFailIf, "the log has whole seconds")
	assert.Regexp(t, `as logged +40 +0`, replayed)
}

// Promise: `ral suggest` proposes limits for each plan if a field of the log names plans.
func TestEachPlanHasLimits(t *testing.T) {
	var log strings.Builder
	for i := range 20 {
		fmt.Fprintf(&log, "{\"ts\":1795930621.%d,\"id\":%d,\"plan\":\"free\"}\n{\"ts\":1795930621.%d,\"id\":7,\"plan\":\"gold\x1b\"}\n", 10+i, i%5, 10+i)
	}
	text, err := onLog(t, strings.ReplaceAll(log.String(), "\x1b", `\u001b`), "suggest", "-", "--time", "ts", "--key", "id", "--plan", "plan", "--rate", "1/s")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)Plan free: for 5 keys, .*funnel 4, 1/s +0 .*Plan gold\?: for 1 key, .*funnel 20, 1/s +0`, text)
}

func TestRefuseAtMostBoundsTheKeys(t *testing.T) {
	for text, want := range map[string]string{"20": "20", "3 keys": "3", " 1 key": "1", "0": "0", "50%": "5", "20 %": "2", "9.09%": "0", "9.1%": "1"} {
		shown, err := onLog(t, accessLog("a"), "suggest", "-", "--refuse-at-most", text)
		require.NoError(t, err)
		assert.Contains(t, shown, "for 11 keys, of which at most "+want+" may", text)
	}
}

func TestSuggestTellsFaults(t *testing.T) {
	for want, args := range map[string][]string{
		"there is no log": {},
		"invalid value \"x\" for flag -rate: want a rate such as 10/s":           {"-", "--rate", "x"},
		"invalid value \"x\" for flag -period: want a period such as m":          {"-", "--period", "x"},
		"invalid value \"Mars\" for flag -zone: want a time zone such as UTC":    {"-", "--zone", "Mars"},
		"invalid value \"0s\" for flag -max-time: want a time such as 30s":       {"-", "--max-time", "0s"},
		"invalid value \"101%\" for flag -refuse-at-most: want a number of keys": {"-", "--refuse-at-most", "101%"},
		"want a number of keys":   {"-", "--refuse-at-most", "a few"},
		"want statuses such as":   {"-", "--refused-status", "busy"},
		"--max-keys is 0, want 1": {"-", "--max-keys", "0"},
		"no variable $plan":       {"-", "--plan", "plan"},
		"flag -rate: want a rate such as 10/s or 90/m: ral: limit \"funnel 1, ^30000007/s\" at byte 10: count is 30000007": {"-", "--rate", "30000007/s"},
	} {
		_, err := onLog(t, accessLog("a"), append([]string{"suggest"}, args...)...)
		assert.ErrorContains(t, err, want)
	}
}
