package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// inputs are earlier runs.
type inputs struct {
	old     *document // to compare with, or nil
	oldName string
	shown   *document // to show instead of measuring, or nil
}

// read reads the earlier runs that the flags name.
func (s settings) read() (in inputs, err error) {
	get := func(what, name string) (*document, error) {
		if name == "" {
			return nil, nil
		}
		d, err := readDocument(name)
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

// outputs are where a run goes, besides the terminal.
type outputs struct {
	jsonToStdout bool
	json, html   *os.File // nil for none
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
		o.html, err = open("html", s.html)
	}
	return o, err
}

// write writes the document everywhere, whatever fails on the way.
func (o outputs) write(in inputs, d document, stdout, stderr io.Writer) error {
	var c *comparison
	if in.old != nil {
		made := compare(in.oldName, *in.old, d)
		c = &made
	}
	var failures []error
	fail := func(errs ...error) { failures = append(failures, errs...) }
	people := stdout
	if o.jsonToStdout {
		// The tables go where they do not get mixed with the JSON.
		fail(d.writeJSON(stdout))
		people = stderr
	}
	if o.json != nil {
		fail(d.writeJSON(o.json), o.json.Close())
	}
	fail(d.writeTable(people))
	if c != nil {
		fail(c.write(people))
	}
	if o.html != nil {
		fail(writeHTML(o.html, d, c), o.html.Close())
	}
	return errors.Join(failures...)
}
