package observetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/observe/metrics"
)

// MetricRow is a metric of docs/metrics.md with the values of its label, nil if the program chooses
// these.
type MetricRow struct {
	metrics.Metric
	Values []string
}

func (r MetricRow) String() string {
	labels := "`limit`"
	if r.Label != "" {
		labels += ", `" + r.Label + "`: " + strings.Join(r.Values, ", ")
	}
	kind, unit := "counter", r.Unit
	if r.Gauge {
		kind = "gauge"
	}
	if unit == "" {
		unit = "0 or 1"
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | %s | %s | %s |", r.Prometheus(), r.Name, kind, unit, labels, r.Help)
}

// MetricRows returns the rows of docs/metrics.md.
func MetricRows(t *testing.T) (rows []MetricRow) {
	t.Helper()
	for line := range strings.Lines(metricsPage(t)) {
		if !strings.HasPrefix(line, "| `ral_") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		require.Len(t, cells, 6, line)
		metricRow := MetricRow{Metric: metrics.Metric{Name: strings.Trim(cells[1], "`"), Gauge: cells[2] == "gauge", Unit: cells[3], Help: cells[5]}}
		if metricRow.Unit == "0 or 1" {
			metricRow.Unit = ""
		}
		if _, label, ok := strings.Cut(cells[4], ", "); ok {
			label, values, _ := strings.Cut(label, ": ")
			metricRow.Label, metricRow.Values = strings.Trim(label, "`"), strings.Split(values, ", ")
		}
		require.Equal(t, strings.TrimSpace(line), metricRow.String())
		rows = append(rows, metricRow)
	}
	require.NotEmpty(t, rows)
	return rows
}

// metricsPage returns docs/metrics.md, which is in a folder above the test.
func metricsPage(t *testing.T) string {
	for dir := "."; ; dir = filepath.Join("..", dir) {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "metrics.md"))
		if err == nil {
			return string(text)
		}
		require.Less(t, strings.Count(dir, ".."), 8, "docs/metrics.md is in no folder above: %v", err)
	}
}

// PageHolds checks that the metrics are the rows of docs/metrics.md with matching names, in order,
// with all values.
func PageHolds(t *testing.T, whole string, sources ...*metrics.Source) {
	t.Helper()
	names := regexp.MustCompile(whole)
	var own []MetricRow
	for _, source := range sources {
		require.NoError(t, source.Err())
		for _, series := range source.Series() {
			i := slices.IndexFunc(own, func(metricRow MetricRow) bool { return metricRow.Name == series.Metric.Name })
			if i < 0 {
				i = len(own)
				own = append(own, MetricRow{Metric: *series.Metric})
			}
			if series.Value != "" && !slices.Contains(own[i].Values, series.Value) {
				own[i].Values = append(own[i].Values, series.Value)
			}
		}
	}
	var want, got []string
	page := map[string]MetricRow{}
	for _, metricRow := range MetricRows(t) {
		page[metricRow.Name] = metricRow
		if names.MatchString(metricRow.Name) {
			want = append(want, metricRow.String())
		}
	}
	for _, metricRow := range own {
		row, ok := page[metricRow.Name]
		if metricRow.Label == "shadow" {
			metricRow.Values = []string{"names of limits"}
		}
		if names.MatchString(metricRow.Name) {
			got = append(got, metricRow.String())
		} else if assert.True(t, ok, "docs/metrics.md has no %s", metricRow.Name) {
			assert.Subset(t, row.Values, metricRow.Values, metricRow.Name)
			metricRow.Values = row.Values
			assert.Equal(t, row.String(), metricRow.String())
		}
	}
	assert.Equal(t, want, got, "docs/metrics.md is to have:\n%s", strings.Join(got, "\n"))
}

// EveryMetric returns a source with every metric of docs/metrics.md. The value of a series is its
// number.
func EveryMetric(t *testing.T, name string) *metrics.Source {
	var table []metrics.Reading[int]
	for _, metricRow := range MetricRows(t) {
		values := metricRow.Values
		switch metricRow.Label {
		case "":
			values = []string{""}
		case "shadow":
			values = []string{`a "quoted" name`}
		}
		for _, text := range values {
			n := len(table) + 1
			table = append(table, metrics.Reading[int]{Metric: metricRow.Metric, Value: text, Of: func(*int) any { return n }})
		}
	}
	return metrics.New(name, func() int { return 0 }, table)
}
