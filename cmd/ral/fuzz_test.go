package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Promise: No log makes `ral replay` or `ral suggest` panic or hang, and no control character of it is shown.
func FuzzLog(f *testing.F) {
	record := "ral 1795930621000000007 start 0 0 0 start\nral 1795930621250000000 take 200 3 17 k1\nral 1795930621250000001 block 200 5 0 k1\n" +
		"ral 1795930621250000002 limit 0 0 0 \"funnel 2, 1/s -> funnel 3, 1/s\"\nral 1795930621250000003 end 200 1 17 0\nral 1795930621250000004 reset 200 0 0 k1\n" +
		"ral 1795930621250000005 charge 200 9 0 k1\nral 1795930621250000005 refund 200 9 0 k1\nral 1795930621250000006 release 200 0 17 0\n"
	csv := "at,took,id,n,plan\n1795930621,2,a,3,x\n1795930622.5,1,b,1,y\n"
	json := `{"ts":1795930621.5,"request":{"client_ip":"192.0.2.1"},"duration":0.25,"status":200}` + "\n"
	for i, text := range []string{strings.Join(strings.SplitAfter(accessLog("a"), "\n")[36:], ""), record, json + json, csv, csv, "\x1f\x8b\x08", record} {
		f.Add([]byte(text), uint8(i))
	}
	commands := [][]string{
		{"replay", "--limit", "funnel 2, 1/s", "--retries", "--show-keys"}, {"replay", "--limit", "funnel 2, 1/s", "--against", "queue 1, 1/s", "--form", "ral", "--window", "1s"},
		{"replay", "--limit", "in flight 1, 2s at most", "--limit", "window 3/day in Asia/Tokyo", "--retries", "--show-keys", "--max-keys", "2"},
		{"suggest", "--form", "csv", "--time", "at", "--key", "id", "--duration", "took", "--cost", "n", "--plan", "plan", "--rate", "1/s", "--period", "m"},
		{"replay", "--form", "csv", "--time", "at", "--key", "id,plan", "--duration", "took", "--cost", "n", "--limit", "bursty 2/s, 4", "--limit", "sliding 3/s", "--max-keys", "2"},
		{"suggest", "--rate", "1/s", "--period", "m"}, {"replay", "--form", "ral", "--limit", "in flight 2, 1m at most", "--limit", "funnel 2, 1/s", "--retries", "--max-keys", "3", "--json", "--show-keys"},
	}
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		args := commands[int(which)%len(commands)]
		var out bytes.Buffer
		err := run(t.Context(), append(args, "-"), bytes.NewReader(text), &out, io.Discard)
		shown := out.String()
		if err != nil {
			shown += err.Error()
		}
		isHidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }
		if i := strings.IndexFunc(shown, isHidden); i >= 0 || !utf8.ValidString(shown) {
			t.Fatalf("at byte %d of %q", i, shown)
		}
	})
}
