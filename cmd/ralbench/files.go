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

// outputs are the targets of a run other than the terminal.
type outputs struct {
	jsonToStdout bool
	goals        bool // only the goals are for people to read
	files        []output
}

type output struct {
	*os.File
	write func(io.Writer, report.Document) error
}

func (s settings) create() (outputs, error) {
	o := outputs{jsonToStdout: s.json == "-", goals: s.goals}
	for _, f := range []struct {
		flag, name string
		write      func(io.Writer, report.Document) error
	}{
		{"json", s.json, func(w io.Writer, d report.Document) error { return d.WriteJSON(w) }},
		{"html", s.html, page.Write},
		{"o", s.benchmarks, func(w io.Writer, d report.Document) error { return d.WriteBenchmarks(w) }},
	} {
		if f.name == "" || f.name == "-" && f.flag == "json" {
			continue
		}
		file, err := os.Create(f.name)
		if err != nil {
			return o, fmt.Errorf("flag -%s %s: cannot be written: %w", f.flag, f.name, err)
		}
		o.files = append(o.files, output{file, f.write})
	}
	return o, nil
}

// write writes all outputs, even if some fail.
func (o outputs) write(d report.Document, stdout, stderr io.Writer) error {
	var failures []error
	people, show := stdout, terminal.Write
	if o.jsonToStdout {
		// The tables must not be mixed with the JSON.
		failures = append(failures, d.WriteJSON(stdout))
		people = stderr
	}
	if o.goals {
		show = terminal.WriteGoals
	}
	failures = append(failures, show(people, d, terminal.Width(people)))
	for _, f := range o.files {
		failures = append(failures, f.write(f, d), f.Close())
	}
	return errors.Join(failures...)
}
