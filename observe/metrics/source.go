package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// Source is one limiter, or several, as the exporters read it. Engine, Tiered and Trial
// make one of what their names say, Middleware.Metrics of package httplimit and
// Limiter.Metrics of module fleet of theirs, and New of anything else. The zero Source has
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
	// Value is that of Metric.Label. It is "" if the metric has none.
	Value string
}

// Reading reads the value of one series from a snapshot S of a limiter's counters.
type Reading[S any] struct {
	// Metric is a Metric.Name of the contract.
	Metric string
	// Value is that of the metric's Label, one of its Values.
	Value string
	// Of returns the present value, or NaN if there is none now. It must not keep the
	// snapshot.
	Of func(snapshot *S) float64
}

// New makes a Source of a limiter that this module does not know, such as one over a fleet.
// name is its name, and must not be empty. snapshot is called once for each scrape. What
// is wrong with the arguments is the Source's Err.
func New[S any](name string, snapshot func() S, readings []Reading[S]) *Source {
	switch {
	case name == "" || !utf8.ValidString(name):
		return failed(fmt.Errorf("ral: metrics.New: name is %.80q, want some text of UTF-8", name))
	case snapshot == nil:
		return failed(errors.New("ral: metrics.New: snapshot is nil, want a function that returns the counters"))
	}
	s := &Source{}
	for i, r := range readings {
		m, err := find(r.Metric)
		switch {
		case err != nil:
			return failed(fmt.Errorf("ral: metrics.New: readings[%d].Metric: %w", i, err))
		case r.Of == nil:
			return failed(fmt.Errorf("ral: metrics.New: readings[%d].Of is nil, want a function that returns the value of %s", i, r.Metric))
		case (m.Label == "") != (r.Value == "") || m.Values != nil && !slices.Contains(m.Values, r.Value):
			return failed(fmt.Errorf("ral: metrics.New: readings[%d].Value is %q, want one of %q for %s", i, r.Value, m.Values, r.Metric))
		}
		s.series = append(s.series, Series{m, name, r.Value})
	}
	if err := Distinct(s.series); err != nil {
		return failed(err)
	}
	s.read = append(s.read, func(into []float64) []float64 {
		now := snapshot()
		for i := range readings {
			into = append(into, readings[i].Of(&now))
		}
		return into
	})
	return s
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

// Absent reports whether a value that Read returned stands for none.
func Absent(value float64) bool { return math.IsNaN(value) }

// ErrDuplicate reports two limiters of one name in one registry. The text has the name.
var ErrDuplicate = errors.New("ral: metrics: two limiters have the same name")

// Duplicate returns an ErrDuplicate about a limiter of that name.
func Duplicate(limit string) error {
	return fmt.Errorf("%w: %q; give each a Name of its own, or register them in different registries", ErrDuplicate, limit)
}

// Distinct returns an ErrDuplicate if two of the series are the same.
func Distinct(series []Series) error {
	type id struct{ metric, limit, value string }
	seen := make(map[id]bool, len(series))
	for _, s := range series {
		key := id{s.Metric.Name, s.Limit, s.Value}
		if seen[key] {
			return Duplicate(s.Limit)
		}
		seen[key] = true
	}
	return nil
}
