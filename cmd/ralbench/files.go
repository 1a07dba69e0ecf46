package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ral-limiter/ral/cmd/ralbench/compare"
	"github.com/ral-limiter/ral/cmd/ralbench/page"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

// inputs are the earlier runs that the flags name.
type inputs struct {
	old     *report.Document // to compare with, or nil
	oldName string
	shown   *report.Document // to show instead of measuring, or nil
}

// read reads them.
func (s settings) read() (in inputs, err error) {
	get := func(what, name string) (*report.Document, error) {
		if name == "" {
			return nil, nil
		}
		d, err := report.Read(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		return &d, nil
	}
	in.oldName = s.compare
	if in.old, err = get("flag -compare", s.compare); err != nil {
		return in, err
	}
	in.shown, err = get("the run to show", s.shown)
	return in, err
}

// outputs are the files that a run is written to, apart from the terminal.
type outputs struct {
	jsonToStdout bool
	goals        bool     // only the goals are for people to read
	json, html   *os.File // nil for none
	record       *os.File // nil for none
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
	if o.goals = s.goals; s.recordFile != "" {
		o.record, err = open("record", s.recordFile)
	}
	return o, err
}

// write writes the document everywhere. A failure of one output does not stop the
// others.
func (o outputs) write(in inputs, d report.Document, stdout, stderr io.Writer) error {
	var c *compare.Comparison
	if in.old != nil {
		made := compare.Runs(in.oldName, *in.old, d)
		c = &made
	}
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
	if o.record != nil {
		fail(report.RecordOf(d).Write(o.record), o.record.Close())
	}
	if o.goals {
		fail(terminal.WriteGoals(people, d, width))
	} else {
		fail(terminal.Write(people, d, width))
	}
	if c != nil {
		fail(terminal.WriteComparison(people, *c, width))
	}
	if o.html != nil {
		fail(page.Write(o.html, d, c), o.html.Close())
	}
	return errors.Join(failures...)
}
