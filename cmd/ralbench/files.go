package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/page"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/terminal"
)

// output is a target of a run other than the terminal.
type output struct {
	*os.File
	write func(report.Document, io.Writer) error
}

func (s settings) create() (files []output, err error) {
	for _, f := range []struct {
		flag, name string
		write      func(report.Document, io.Writer) error
	}{
		{"json", s.json, report.Document.WriteJSON},
		{"html", s.html, func(document report.Document, w io.Writer) error { return page.Write(w, document) }},
		{"o", s.benchmarks, report.Document.WriteBenchmarks},
	} {
		if f.name == "" || f.name == "-" && f.flag == "json" {
			continue
		}
		file, err := os.Create(f.name)
		if err != nil {
			return files, fmt.Errorf("flag -%s %s: cannot be written: %w", f.flag, f.name, err)
		}
		files = append(files, output{file, f.write})
	}
	return files, nil
}

// write writes all outputs, even if some fail.
func (s settings) write(files []output, document report.Document, stdout, stderr io.Writer) error {
	var failures []error
	people, show := stdout, terminal.Write
	if s.json == "-" {
		// The tables must not be mixed with the JSON.
		failures = append(failures, document.WriteJSON(stdout))
		people = stderr
	}
	if s.goals {
		show = terminal.WriteGoals
	}
	failures = append(failures, show(people, document, terminal.Width(people)))
	for _, output := range files {
		failures = append(failures, output.write(document, output), output.Close())
	}
	return errors.Join(failures...)
}
