package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ral-limiter/ral/cmd/ralbench/page"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

// read reads the earlier run to show instead of measuring, nil if there is none.
func (s settings) read() (*report.Document, error) {
	if s.shown == "" {
		return nil, nil
	}
	d, err := report.Read(s.shown)
	if err != nil {
		return nil, fmt.Errorf("the run to show: %w", err)
	}
	return &d, nil
}

// outputs are the files that a run is written to, apart from the terminal.
type outputs struct {
	jsonToStdout bool
	goals        bool     // only the goals are for people to read
	json, html   *os.File // nil for none
	benchmarks   *os.File // nil for none
}

// create opens the files that the flags name.
func (s settings) create() (o outputs, err error) {
	open := func(flag, name string) (*os.File, error) {
		f, err := os.Create(name)
		if err != nil {
			return nil, fmt.Errorf("flag -%s %s: cannot be written: %w", flag, name, err)
		}
		return f, nil
	}
	o.jsonToStdout = s.json == "-"
	if s.json != "" && !o.jsonToStdout {
		if o.json, err = open("json", s.json); err != nil {
			return o, err
		}
	}
	if s.html != "" {
		if o.html, err = open("html", s.html); err != nil {
			return o, err
		}
	}
	if o.goals = s.goals; s.benchmarks != "" {
		o.benchmarks, err = open("o", s.benchmarks)
	}
	return o, err
}

// write writes the document everywhere. A failure of one output does not stop the
// others.
func (o outputs) write(d report.Document, stdout, stderr io.Writer) error {
	var failures []error
	fail := func(errs ...error) { failures = append(failures, errs...) }
	people := stdout // for people to read
	if o.jsonToStdout {
		// The tables must not be mixed with the JSON.
		fail(d.WriteJSON(stdout))
		people = stderr
	}
	width := terminal.Width(people)
	if o.json != nil {
		fail(d.WriteJSON(o.json), o.json.Close())
	}
	if o.benchmarks != nil {
		fail(d.WriteBenchmarks(o.benchmarks), o.benchmarks.Close())
	}
	if o.goals {
		fail(terminal.WriteGoals(people, d, width))
	} else {
		fail(terminal.Write(people, d, width))
	}
	if o.html != nil {
		fail(page.Write(o.html, d), o.html.Close())
	}
	return errors.Join(failures...)
}
