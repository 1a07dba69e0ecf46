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

// Metric is the name and the meaning of a metric, the same in every monitoring system.
type Metric struct {
	// Name is the name in OpenTelemetry: "ral.fleet.redis_time".
	Name string
	// Help is one sentence.
	Help string
	// Gauge reports whether the value goes up and down. Otherwise it is a counter, which
	// only grows, from 0 when the limiter is made.
	Gauge bool
	// Unit is as OpenTelemetry has it (UCUM): "s" for seconds, "By" for bytes, "1" for a ratio, what
	// is counted in braces, such as "{call}", or "" for a gauge that is 0 or 1.
	Unit string
	// Label is the name of the label beside LimitLabel, or "" if there is none.
	Label string
}

// LimitLabel is the label of every metric that holds the limiter's name.
const LimitLabel = "limit"

// Prometheus returns the name in the form of Prometheus: "ral_fleet_redis_time_seconds_total". It is
// made of Name, Unit and Gauge as OpenTelemetry's exporters do.
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

// Reading is a line of a limiter's table of metrics: one series, and how it is read from a
// snapshot S of the limiter's counters.
type Reading[S any] struct {
	// Metric is the metric of the series. Without a Name it is the metric of the line before.
	// With a Name alone it is a metric that engines have.
	Metric Metric
	// Value is the value of Metric.Label. It is "" if the metric has none.
	Value string
	// Of returns the present value: a float64, an int, or a pointer to a field of the
	// snapshot that is an int, a uint64, a time.Duration, which is read in seconds, or a
	// bool, which is read as 1 or 0. It returns nil if there is no value now.
	Of func(snapshot *S) any
}

// Source is one limiter, or several, as the exporters read it. Engine, Tiered, Single and Trial
// make one of what their names say, methods called Metrics of other limiters and of middleware
// make one of theirs, and New of anything else. The zero Source has
// no series. Any number of goroutines may call its methods.
type Source struct {
	series []Series
	read   []func(into []float64) []float64
	err    error
}

// Series is one time series of a Source: a metric of one limiter, with one value of the
// metric's Label.
type Series struct {
	Metric *Metric
	// Limit is the value of LimitLabel.
	Limit string
	// Value is the value of Metric.Label. It is "" if the metric has none.
	Value string
}

// ErrDuplicate reports two limiters of one name in one registry. The text of an error that
// wraps it has the name.
var ErrDuplicate = errors.New("ral: metrics: two limiters have the same name")

// New makes a Source of a limiter that this package does not know, such as one over a fleet.
// name is its name, and must not be empty. snapshot is called once for each scrape. What
// is wrong with the arguments is the Source's Err.
func New[S any](name string, snapshot func() S, table []Reading[S]) *Source {
	switch {
	case name == "" || !utf8.ValidString(name):
		return failed(fmt.Errorf("ral: metrics.New: name is %.80q, want some text of UTF-8", name))
	case snapshot == nil:
		return failed(errors.New("ral: metrics.New: snapshot is nil, want a function that returns the counters"))
	}
	s := &Source{series: make([]Series, len(table))}
	m := &Metric{}
	seen := map[[2]string]bool{}
	for i := range table {
		r := &table[i]
		if r.Metric.Name != "" {
			m = &r.Metric
		}
		if m.Help == "" {
			m = ofEngines(m.Name)
		}
		id := [2]string{}
		if m != nil {
			id = [2]string{m.Name, r.Value}
		}
		switch {
		case m == nil:
			return failed(fmt.Errorf("ral: metrics.New: table[%d].Metric has the Name %q and no Help, and engines have no such metric", i, r.Metric.Name))
		case r.Of == nil:
			return failed(fmt.Errorf("ral: metrics.New: table[%d].Of is nil, want a function that returns the value of %s", i, m.Name))
		case (m.Label == "") != (r.Value == ""):
			return failed(fmt.Errorf("ral: metrics.New: table[%d].Value is %q, and the label of %s is %q", i, r.Value, m.Name, m.Label))
		case seen[id]:
			return failed(fmt.Errorf("ral: metrics.New: table[%d] is %s %q, which an earlier line is too", i, m.Name, r.Value))
		}
		seen[id] = true
		s.series[i] = Series{m, name, r.Value}
	}
	s.read = append(s.read, func(into []float64) []float64 {
		now := snapshot()
		for i := range table {
			into = append(into, number(table[i].Of(&now)))
		}
		return into
	})
	return s
}

// number returns the value that Reading.Of has returned.
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

// join makes one Source of several.
func join(sources ...*Source) *Source {
	all := &Source{}
	for _, s := range sources {
		all.series = append(all.series, s.series...)
		all.read = append(all.read, s.read...)
		all.err = errors.Join(all.err, s.err)
	}
	return all
}

// Err returns what was wrong with the arguments of which the Source was made, or nil. The
// exporters return it.
func (s *Source) Err() error {
	if s == nil {
		return errors.New("ral: metrics: the Source is nil, want the result of metrics.Engine, for one")
	}
	return s.err
}

// Series returns the series. They never change.
func (s *Source) Series() []Series { return slices.Clone(s.series) }

// Read appends the present values of all Series to into, in their order, and returns it. A
// value is NaN if there is none now. The counters of a limiter are read one after the other
// while calls go on.
func (s *Source) Read(into []float64) []float64 {
	for _, read := range s.read {
		into = read(into)
	}
	return into
}
