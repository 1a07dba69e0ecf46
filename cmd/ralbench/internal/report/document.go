// Package report holds a run of ralbench and reads and writes it as JSON. It computes tables,
// audits, goals and the verdict for the terminal and the page. A [Column] describes a figure once:
// for tables, charts, goals, the verdict and the format of Go benchmarks.
//
// Start reading at [Document], then [Columns] and [VerdictOf].
package report

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
)

// Schema is the version of the JSON. It grows when a field that is read changes its meaning or goes, not
// for new fields.
const Schema = 3

// Document is everything about a run. Durations are in nanoseconds.
type Document struct {
	Schema   int       `json:"schema"`
	Time     time.Time `json:"time"`
	Machine  Machine   `json:"machine"`
	Settings Settings  `json:"settings"`
	bench.Report
	// Transfer is the nanoseconds in which a changed cache line reaches another core, with -cores.
	Transfer float64 `json:"transfer_ns,omitempty"`
	// Redis is the version of the Redis of a run of fleet mode or of servers.
	Redis string `json:"redis,omitempty"`
}

type Settings struct {
	Duration   time.Duration `json:"duration_ns"`
	Rounds     int           `json:"rounds"`
	CPUs       []int         `json:"cpus"` // values of GOMAXPROCS
	Scale      float64       `json:"scale"`
	Budget     time.Duration `json:"budget_ns"`
	Full       bool          `json:"full"`
	Brief      bool          `json:"brief,omitempty"` // the workloads of bench.Calls were cut short
	Fleet      bool          `json:"fleet,omitempty"`
	Serve      bool          `json:"serve,omitempty"`
	Cores      bool          `json:"cores,omitempty"`
	Workloads  []string      `json:"workloads"`
	Contenders []string      `json:"contenders"`
	Args       []string      `json:"args,omitempty"` // of the command
}

// WriteJSON writes the document, indented.
func (d Document) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(d)
}

const (
	KindRal       = "ral"
	KindYardstick = "floor"
	KindPeer      = "peer"
	KindKnown     = "known" // latencies of known keys
)

// KindOf returns the kind of a result's contender.
func KindOf(result bench.Result) string {
	if !result.IsLimiter() {
		return KindYardstick
	}
	return KindNamed(result.Name)
}

// Rounds returns the number of rounds that all contenders have.
func Rounds(w bench.WorkloadReport) int {
	n := w.Rounds
	for _, result := range w.Results {
		n = min(n, len(result.Rounds))
	}
	return n
}

// cutShort names the workloads with fewer rounds than planned.
func cutShort(document Document) (short []string) {
	for _, w := range document.Workloads {
		if Rounds(w) < w.Rounds {
			short = append(short, taskName(document, w.Name, w.CPU))
		}
	}
	return short
}

// taskName returns a workload's name, with GOMAXPROCS if there are several values.
func taskName(document Document, workload string, cpu int) string {
	if len(document.Settings.CPUs) > 1 {
		return format.Task(workload, cpu)
	}
	return workload
}

// KindNamed is KindOf for a limiter's name.
func KindNamed(contender string) string {
	if contender == ral || contender == servebench.Rald || strings.HasPrefix(contender, ral+" ") {
		return KindRal
	}
	return KindPeer
}
