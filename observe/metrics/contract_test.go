package metrics

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// row is a metric as a row of the table in docs/metrics.md.
func row(m Metric) string {
	labels := "`limit`"
	switch {
	case m.Values != nil:
		labels += ", `" + m.Label + "`: " + strings.Join(m.Values, ", ")
	case m.Label != "":
		labels += ", `" + m.Label + "`: names of limits"
	}
	unit := m.Unit
	if unit == "" {
		unit = "0 or 1"
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | %s | %s | %s |", m.Prometheus(), m.Name, m.Kind, unit, labels, m.Help)
}

// Dashboards and alerts of users go by these names. A metric of a released version stays as
// it is; new ones are added to the table and to the contract.
//
// Promise: Metrics keep their names.
func TestContractIsFrozen(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var frozen, now []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `ral_") {
			frozen = append(frozen, strings.TrimSpace(line))
		}
	}
	for _, m := range All() {
		now = append(now, row(m))
	}
	assert.Equal(t, frozen, now, "docs/metrics.md is to have:\n%s", strings.Join(now, "\n"))
}

// Promise: Names follow the conventions of Prometheus and OpenTelemetry.
func TestNamesFollowTheConventions(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		prom := m.Prometheus()
		assert.Regexp(t, `^ral(\.[a-z]+(_[a-z]+)*)+$`, m.Name)
		assert.Regexp(t, `^ral(_[a-z]+)+$`, prom)
		assert.Equal(t, m.Kind == Counter, strings.HasSuffix(prom, "_total"), prom)
		assert.False(t, names[prom], "two metrics are %s", prom)
		names[prom] = true
		assert.Regexp(t, `^(s|By|1|\{[a-z]+\})?$`, m.Unit, "%s: base units only", prom)
		assert.NotEqual(t, Counter == m.Kind && m.Unit == "", true, "%s counts nothing", prom)
		assert.Regexp(t, `^[A-Z0-9].*[^.]\.$`, m.Help, prom)
		assert.Equal(t, m.Label == "", m.Values == nil && m.Name != "ral.http.shadowed_requests", prom)
		assert.Regexp(t, `^(result|reason|source|state|used|shadow)?$`, m.Label, "%s: a label is no key", prom)
		for _, v := range m.Values {
			assert.Regexp(t, regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), v, prom)
		}
		assert.LessOrEqual(t, len(m.Values), 9, "%s: each value is a series of each limiter", prom)
	}
	assert.Greater(t, len(names), 35)
}

func TestUnitsAreInTheNameOfPrometheus(t *testing.T) {
	for _, c := range []struct {
		m    Metric
		want string
	}{
		{Metric{Name: "ral.a.b_c", Unit: "s"}, "ral_a_b_c_seconds_total"},
		{Metric{Name: "ral.a", Unit: "s", Kind: Gauge}, "ral_a_seconds"},
		{Metric{Name: "ral.a", Unit: "By", Kind: Gauge}, "ral_a_bytes"},
		{Metric{Name: "ral.a", Unit: "1", Kind: Gauge}, "ral_a_ratio"},
		{Metric{Name: "ral.a", Unit: "{key}", Kind: Gauge}, "ral_a"},
		{Metric{Name: "ral.a", Unit: "", Kind: Gauge}, "ral_a"},
	} {
		assert.Equal(t, c.want, c.m.Prometheus())
	}
}

func TestContractCannotBeChangedByItsReaders(t *testing.T) {
	All()[0].Name = "other"
	assert.Equal(t, "ral.calls", All()[0].Name)
}
