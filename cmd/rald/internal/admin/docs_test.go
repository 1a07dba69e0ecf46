package admin

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	documented = regexp.MustCompile("(?m)^\\| `(rald_\\w+)` \\| (\\w+) \\| (.*?) ?\\| (.*) \\|$")
	exposed    = regexp.MustCompile(`(?m)^# HELP (rald_\w+) (.*)\n# TYPE \w+ (\w+)\n(.*)$`)
	label      = regexp.MustCompile(`(\w+)="`)
)

// docs/serving.md has the doors' metrics: name, type, labels and help.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/serving.md")
	require.NoError(t, err)
	want := map[string][]string{}
	for _, row := range documented.FindAllStringSubmatch(string(text), -1) {
		want[row[1]] = []string{row[2], row[3], row[4]}
	}
	c := withLimits(t)
	hit(t, c, "user")
	_, exposition := get(t, serve(t, c)+"/metrics")
	got := map[string][]string{}
	for _, m := range exposed.FindAllStringSubmatch(exposition, -1) {
		var labels []string
		for _, l := range label.FindAllStringSubmatch(m[4], -1) {
			labels = append(labels, "`"+l[1]+"`")
		}
		got[m[1]] = []string{m[3], strings.Join(labels, ", "), m[2]}
	}
	assert.Equal(t, want, got)
}
