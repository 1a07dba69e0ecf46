package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/page"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/terminal"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// Promise: ralbench refuses bad flags.
func FuzzFlags(f *testing.F) {
	for _, line := range []string{
		"", "-h", "-full -html x", "-duration 2s -rounds 7 -cpu 1,3 -scale 0.5 -workloads zipf,hot-pass", "-json - -budget 0",
		"-peers all", "-peers none -cpu 0", "old.json -o", "-scale NaN", "-duration 1e9h", "-cpu 1,1", "-rounds -1", "--", "a b", "-json= x", "-fleet -peers all",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		s, err := parse(strings.Split(line, " "))
		if err != nil {
			if text := err.Error(); text == "" || errors.Is(err, flag.ErrHelp) != strings.Contains(text, "help requested") {
				t.Errorf("%q: %v", line, err)
			}
			return
		}
		switch {
		case s.Duration < minDuration || s.Duration > maxDuration, s.Rounds < 1 || s.Rounds > maxRounds,
			!(s.Scale >= minScale && s.Scale <= maxScale), s.Budget < 0 || s.Budget > maxBudget,
			len(s.CPUs) == 0, len(s.workloads) == 0, len(s.contenders) == 0:
			t.Errorf("%q: %+v", line, s)
		}
		for _, cpu := range s.CPUs {
			if cpu < 1 || cpu > maxCPU {
				t.Errorf("%q: %d processors", line, cpu)
			}
		}
		_ = s.record()
	})
}

// FuzzDocument reads files: the result is an error, or can be shown and read again.
func FuzzDocument(f *testing.F) {
	f.Add(must.Get(os.ReadFile("testdata/report.json")))
	f.Add([]byte(`{"schema":3,"workloads":[{"name":"a"}]}`))
	f.Add([]byte(`{"schema":3,"workloads":[{"name":"a","results":[{"contender":"b","rounds":[{}]}]}]}`))
	f.Add([]byte(`{"schema":3,"settings":{"fleet":true},"workloads":[{"name":"a","results":[{"contender":"b","share":1,"memory":{"usage":1},"audit":{"each":[1]},"rounds":[{"behind_ns":1}]}]}]}`))
	f.Add([]byte(`{"schema":1,"workloads":[{"name":"a"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<16 {
			return
		}
		d, err := report.Decode(bytes.NewReader(content))
		if err != nil {
			if len(err.Error()) < 20 {
				t.Error(err)
			}
			return
		}
		var written bytes.Buffer
		for what, err := range map[string]error{
			"table":      terminal.Write(io.Discard, d, 80),
			"benchmarks": d.WriteBenchmarks(io.Discard),
			"page":       page.Write(io.Discard, d),
			"file":       d.WriteJSON(&written),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if again, err := report.Decode(&written); err != nil || len(again.Workloads) != len(d.Workloads) {
			t.Errorf("what was written cannot be read again: %v", err)
		}
	})
}
