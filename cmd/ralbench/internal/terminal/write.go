// Package terminal shows runs of ralbench and their progress as text that fits a terminal's width.
//
// Start reading at [Write]. run.txt is the text, as page.html is the page.
package terminal

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
)

//go:embed run.txt
var runText string

var runTemplate = template.Must(template.New("").Funcs(report.Funcs).Parse(runText))

// Write writes the document as text of this width.
func Write(w io.Writer, document report.Document, width int) error {
	return runTemplate.ExecuteTemplate(w, "run", printer{document, width})
}

// WriteGoals writes the goals of Ral alone, as text of this width. Missed goals are no failure.
func WriteGoals(w io.Writer, document report.Document, width int) error {
	return runTemplate.ExecuteTemplate(w, "goals", printer{document, width})
}

// printer is the data of run.txt. Its methods return whole lines.
type printer struct {
	report.Document
	width int
}

// Line returns a line, wrapped if it is too long.
func (p printer) Line(lead, text string, args ...any) string {
	if len(args) > 0 {
		text = fmt.Sprintf(text, args...)
	}
	return Wrapped(lead, text, p.width)
}

// Lines returns lines of the verdict under a title, nothing without lines.
func (p printer) Lines(title, lead string, lines []report.Verdict) string {
	if len(lines) == 0 {
		return ""
	}
	for _, verdict := range lines {
		title += p.Line(lead, verdict.Title+": "+verdict.Text)
	}
	return title
}

// Notes returns each promise and note once, with its contenders.
func (p printer) Notes() (lines string) {
	var texts []string
	names := map[string][]string{} // by text
	for _, w := range p.Workloads {
		for _, result := range w.Results {
			text := result.Note
			if result.Promise != "" {
				text = strings.TrimSuffix(fmt.Sprintf("audited as %s; %s", result.Promise, result.Note), "; ")
			}
			if text == "" || slices.Contains(names[text], result.Name) {
				continue
			}
			if names[text] == nil {
				texts = append(texts, text)
			}
			names[text] = append(names[text], result.Name)
		}
	}
	for _, text := range texts {
		lines += p.Line("  ", strings.Join(names[text], ", ")+": "+text)
	}
	return lines
}
