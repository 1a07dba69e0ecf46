package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

// schema is the version of the JSON. It grows when a field changes its meaning or
// goes, not when one is added.
const schema = 1

// document is all that a run has to say. Durations are in nanoseconds.
type document struct {
	Schema   int       `json:"schema"`
	Time     time.Time `json:"time"`
	Machine  machine   `json:"machine"`
	Settings recorded  `json:"settings"`
	bench.Report
	// Fleet is nil but for runs of fleet mode.
	Fleet *fleetbench.Report `json:"fleet,omitempty"`
}

// writeJSON writes the document, indented.
func (d document) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}
