package main

import (
	_ "embed"
	"strings"
	"text/template"

	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/cmd/ral/internal/report"
)

// noteText has the notes of the commands about logs, a line each.
//
//go:embed notes.txt
var noteText string

var noteTemplate = template.Must(template.New("").Funcs(template.FuncMap{"many": many[int64], "printable": report.Printable, "lost": lost}).Parse(noteText))

// notesOf returns the notes of that name. Executing fails only if the template is wrong, which tests would show.
func notesOf(name string, data any) []string {
	var text strings.Builder
	_ = noteTemplate.ExecuteTemplate(&text, name, data)
	return strings.FieldsFunc(text.String(), func(char rune) bool { return char == '\n' })
}

// lost returns how many events the scenarios lost.
func lost(result *replay.Result) (n int64) {
	for _, scenario := range result.Scenarios {
		n += scenario.Lost
	}
	return n
}
