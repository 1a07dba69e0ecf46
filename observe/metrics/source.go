package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Metric describes a metric, the same in every monitoring system.
type Metric struct {
	// Name is the name in OpenTelemetry: "ral.fleet.redis_time".
	Name string
	Help string
	// Gauge reports whether the value goes up and down. A counter grows from 0, from New on.
	Gauge bool
	// Unit is in OpenTelemetry's form (UCUM): "s" for seconds, "By" for bytes, "1" for a ratio,
	// counted things in braces such as "{call}", or "" for a gauge that is 0 or 1.
	Unit string
	// Label is the name of the label beside LimitLabel, or "".
	Label string
}

// LimitLabel is every metric's label for the limiter's name.
const LimitLabel = "limit"

// Prometheus returns the name in Prometheus's form: "ral_fleet_redis_time_seconds_total". It is
// made from Name, Unit and Gauge like in OpenTelemetry's exporters.
func (m *Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	case "1":
		name += "_ratio"
	}
	if !m.Gauge {
		name += "_total"
	}
	return name
}

// Reading describes a series of a limiter, and how to read it from a snapshot S of the counters.
type Reading[S any] struct {
	// Metric is the metric of the series. An empty Name repeats the metric of the line before. A
	// Name alone refers to a metric of engines.
	Metric Metric
	// Value is the value of Metric.Label, "" without a Label.
	Value string
	// Of returns the present value, nil for none: a float64, an int, or a pointer to an int, a
	// uint64, a time.Duration (read in seconds) or a bool (1 or 0) of the snapshot.
	Of func(snapshot *S) any
}

// Source holds the metrics of a limiter or several, for the exporters. Engine, Tiered, Single,
// Trial and New make it, and Metrics methods of other limiters and of middleware. The zero Source
// has no series. It is safe for concurrent use.
type Source struct {
	series []Series
	read   []func(into []float64) []float64
	err    error
}

// Series is a time series of a Source: a limiter's metric with a value of its Label.
type Series struct {
	Metric *Metric
	Limit  string // the value of LimitLabel
	Value  string // of Metric.Label, "" without a Label
}

// ErrDuplicate reports two limiters of the same name in a registry. The wrapping error names it.
var ErrDuplicate = errors.New("ral: metrics: two limiters have the same name")

// New makes a Source of any limiter. name must not be empty. snapshot is called once for each
// scrape. Wrong arguments become the Source's Err.
func New[S any](name string, snapshot func() S, table []Reading[S]) *Source {
	switch {
	case name == "" || !utf8.ValidString(name):
		return failed(fmt.Errorf("ral: metrics.New: name is %.80q, want some text of UTF-8", name))
	case snapshot == nil:
		return failed(errors.New("ral: metrics.New: snapshot is nil, want a function that returns the counters"))
	}
	source := &Source{series: make([]Series, len(table))}
	metric := &Metric{}
	seen := map[[2]string]bool{}
	for i := range table {
		reading := &table[i]
		if reading.Metric.Name != "" {
			metric = &reading.Metric
		}
		if metric.Help == "" {
			metric = ofEngines(metric.Name)
		}
		id := [2]string{}
		if metric != nil {
			id = [2]string{metric.Name, reading.Value}
		}
		switch {
		case metric == nil:
			return failed(fmt.Errorf("ral: metrics.New: table[%d].Metric has the Name %q and no Help, and engines have no such metric", i, reading.Metric.Name))
		case reading.Of == nil:
			return failed(fmt.Errorf("ral: metrics.New: table[%d].Of is nil, want a function that returns the value of %s", i, metric.Name))
		case (metric.Label == "") != (reading.Value == ""):
			return failed(fmt.Errorf("ral: metrics.New: table[%d].Value is %q, and the label of %s is %q", i, reading.Value, metric.Name, metric.Label))
		case seen[id]:
			return failed(fmt.Errorf("ral: metrics.New: table[%d] is %s %q, which an earlier line is too", i, metric.Name, reading.Value))
		}
		seen[id] = true
		source.series[i] = Series{metric, name, reading.Value}
	}
	source.read = append(source.read, func(into []float64) []float64 {
		now := snapshot()
		for i := range table {
			into = append(into, number(table[i].Of(&now)))
		}
		return into
	})
	return source
}

func number(value any) float64 {
	switch v := value.(type) {
	case *uint64:
		return float64(*v)
	case *int:
		return float64(*v)
	case int:
		return float64(v)
	case *time.Duration:
		return v.Seconds()
	case *bool:
		if *v {
			return 1
		}
		return 0
	case float64:
		return v
	}
	return math.NaN()
}

func failed(err error) *Source { return &Source{err: err} }

func join(sources ...*Source) *Source {
	all := &Source{}
	for _, source := range sources {
		all.series = append(all.series, source.series...)
		all.read = append(all.read, source.read...)
		all.err = errors.Join(all.err, source.err)
	}
	return all
}

// Err returns the error of the arguments that made the Source, or nil. The exporters return it.
func (s *Source) Err() error {
	if s == nil {
		return errors.New("ral: metrics: the Source is nil, want the result of metrics.Engine, for one")
	}
	return s.err
}

// Series returns the series, which never change.
func (s *Source) Series() []Series { return slices.Clone(s.series) }

// Read appends the present values of all Series to into, in their order. An absent value is NaN.
// Calls go on while counters are read.
func (s *Source) Read(into []float64) []float64 {
	for _, read := range s.read {
		into = read(into)
	}
	return into
}
