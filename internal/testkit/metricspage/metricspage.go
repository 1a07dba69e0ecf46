// Package metricspage compares limiters' metrics with docs/metrics.md, for tests.
package metricspage

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

// Row is a metric of the page with the values of its label, nil if the program chooses these.
type Row struct {
	metrics.Metric
	Values []string
}

func (r Row) String() string {
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

// Rows returns the rows of the page.
func Rows(t *testing.T) (rows []Row) {
	t.Helper()
	for line := range strings.Lines(read(t)) {
		if !strings.HasPrefix(line, "| `ral_") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		require.Len(t, cells, 6, line)
		r := Row{Metric: metrics.Metric{Name: strings.Trim(cells[1], "`"), Gauge: cells[2] == "gauge", Unit: cells[3], Help: cells[5]}}
		if r.Unit == "0 or 1" {
			r.Unit = ""
		}
		if _, label, ok := strings.Cut(cells[4], ", "); ok {
			label, values, _ := strings.Cut(label, ": ")
			r.Label, r.Values = strings.Trim(label, "`"), strings.Split(values, ", ")
		}
		require.Equal(t, strings.TrimSpace(line), r.String())
		rows = append(rows, r)
	}
	require.NotEmpty(t, rows)
	return rows
}

// read returns the page, which is in a folder above the test.
func read(t *testing.T) string {
	for dir := "."; ; dir = filepath.Join("..", dir) {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "metrics.md"))
		if err == nil {
			return string(text)
		}
		require.Less(t, strings.Count(dir, ".."), 8, "docs/metrics.md is in no folder above: %v", err)
	}
}

// Holds checks that the metrics are the page's rows with matching names, in order, with all values.
func Holds(t *testing.T, whole string, sources ...*metrics.Source) {
	t.Helper()
	names := regexp.MustCompile(whole)
	var own []Row
	for _, source := range sources {
		require.NoError(t, source.Err())
		for _, s := range source.Series() {
			i := slices.IndexFunc(own, func(r Row) bool { return r.Name == s.Metric.Name })
			if i < 0 {
				i = len(own)
				own = append(own, Row{Metric: *s.Metric})
			}
			if s.Value != "" && !slices.Contains(own[i].Values, s.Value) {
				own[i].Values = append(own[i].Values, s.Value)
			}
		}
	}
	var want, got []string
	page := map[string]Row{}
	for _, r := range Rows(t) {
		page[r.Name] = r
		if names.MatchString(r.Name) {
			want = append(want, r.String())
		}
	}
	for _, r := range own {
		row, ok := page[r.Name]
		if r.Label == "shadow" {
			r.Values = []string{"names of limits"}
		}
		if names.MatchString(r.Name) {
			got = append(got, r.String())
		} else if assert.True(t, ok, "docs/metrics.md has no %s", r.Name) {
			assert.Subset(t, row.Values, r.Values, r.Name)
			r.Values = row.Values
			assert.Equal(t, row.String(), r.String())
		}
	}
	assert.Equal(t, want, got, "docs/metrics.md is to have:\n%s", strings.Join(got, "\n"))
}

// Everything returns a source with every metric of the page. The value of a series is its number.
func Everything(t *testing.T, name string) *metrics.Source {
	var table []metrics.Reading[int]
	for _, r := range Rows(t) {
		values := r.Values
		switch r.Label {
		case "":
			values = []string{""}
		case "shadow":
			values = []string{`a "quoted" name`}
		}
		for _, v := range values {
			n := len(table) + 1
			table = append(table, metrics.Reading[int]{Metric: r.Metric, Value: v, Of: func(*int) any { return n }})
		}
	}
	return metrics.New(name, func() int { return 0 }, table)
}
