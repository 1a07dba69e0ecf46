// Package ralprom exports engines, fleets, middleware and any other metrics.Source to Prometheus:
//
//	err := ralprom.Register(prometheus.DefaultRegisterer, metrics.Engine(limiter))
//
// Counters are read when the registry is scraped; calls of the limiter pay nothing. Package metrics
// has the names, the same as in module observe/ralotel.
package ralprom

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ral-limiter/ral/observe/metrics"
)

// Register registers the limiters with a registry, all or none. The error wraps
// metrics.ErrDuplicate and names the limiter if its name is registered already. It is a source's
// Err if the source was made with wrong arguments.
func Register(registry prometheus.Registerer, sources ...*metrics.Source) error {
	for i, source := range sources {
		err := registry.Register(New(source))
		if err == nil {
			continue
		}
		for _, done := range sources[:i] {
			registry.Unregister(New(done))
		}
		return explain(source, err)
	}
	return nil
}

// explain names the limiter if a registry's error is about a duplicate.
func explain(source *metrics.Source, err error) error {
	if source.Err() != nil {
		return source.Err()
	}
	text := err.Error()
	for i, series := range source.Series() {
		// The registry's other errors have no type.
		var already prometheus.AlreadyRegisteredError
		same := i == 0 && errors.As(err, &already) ||
			strings.Contains(text, fmt.Sprintf("fqName: %q", series.Metric.Prometheus())) &&
				strings.Contains(text, fmt.Sprintf("{%s=%q}", metrics.LimitLabel, series.Limit)) &&
				strings.Contains(text, "already exists")
		if same {
			return fmt.Errorf("%w: %q; give each a Name of its own, or register them in different registries: %w", metrics.ErrDuplicate, series.Limit, err)
		}
	}
	return err
}

// New returns a Collector of the source, for programs that register it themselves. A registry
// refuses a second limiter of the same name, and Unregister takes any Collector of the same source.
// Register returns the source's Err.
func New(source *metrics.Source) prometheus.Collector {
	c := &collector{source: source}
	if err := source.Err(); err != nil {
		c.descs = []*prometheus.Desc{prometheus.NewInvalidDesc(err)}
		return c
	}
	type id struct{ metric, limit string }
	known := map[id]*prometheus.Desc{}
	for _, s := range source.Series() {
		key := id{s.Metric.Name, s.Limit}
		desc := known[key]
		var names, values []string
		if s.Metric.Label != "" {
			names, values = []string{s.Metric.Label}, []string{s.Value}
		}
		if desc == nil {
			desc = prometheus.NewDesc(s.Metric.Prometheus(), s.Metric.Help, names, prometheus.Labels{metrics.LimitLabel: s.Limit})
			known[key] = desc
			c.descs = append(c.descs, desc)
		}
		c.series = append(c.series, series{desc, prometheus.MakeLabelPairs(desc, values), s.Metric.Gauge})
	}
	return c
}

type collector struct {
	source *metrics.Source
	descs  []*prometheus.Desc
	series []series
}

type series struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	gauge  bool
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	values := c.source.Read(make([]float64, 0, len(c.series)))
	samples := make([]sample, len(values))
	for i, value := range values {
		if math.IsNaN(value) {
			continue
		}
		samples[i] = sample{&c.series[i], value}
		to <- &samples[i]
	}
}

type sample struct {
	*series
	value float64
}

func (s *sample) Desc() *prometheus.Desc { return s.desc }

func (s *sample) Write(to *dto.Metric) error {
	to.Label = s.labels
	if s.gauge {
		to.Gauge = &dto.Gauge{Value: &s.value}
	} else {
		to.Counter = &dto.Counter{Value: &s.value}
	}
	return nil
}
