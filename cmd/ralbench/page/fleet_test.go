package page

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func TestPageOfFleetMode(t *testing.T) {
	d := reporttest.Fleet(t)
	p := newView(d)
	seen := map[string]bool{}
	for _, c := range slices.Concat(p.Data.Charts, newView(reporttest.Run(t)).Data.Charts) {
		assert.False(t, seen[c.ID], "%s: twice", c.ID)
		seen[c.ID] = true
		for _, point := range c.Points {
			assert.Positive(t, point.Value, "%s: %+v", c.ID, point)
		}
	}
	for _, id := range []string{"fleet-multiples", "fleet-hot-redis", "fleet-keys-redis", "fleet-memory", "fleet-share-even-1000", "fleet-share-shifting-50", "fleet-some-throughput", "fleet-some-latency"} {
		assert.True(t, seen[id], id)
	}

	all := chartOf(t, p.Data.Charts, "fleet-multiples")
	assert.Len(t, all.Points, 4*len(d.Workloads), "all but redis_rate, which is the line")
	assert.Contains(t, all.Summary(), "fleet-some, Ral fleet leased: ")
	share := chartOf(t, p.Data.Charts, "fleet-share-even-1000")
	require.Len(t, share.Points, 2)
	assert.Equal(t, 0.95, share.Lines[0].Value)
	assert.Equal(t, d.Fleet.Shares[0].Share, share.Points[0].Value)
	assert.Contains(t, share.Summary(), "Aim of leased mode: 95.0%.")
	assert.Contains(t, share.Summary(), fleetbench.Leased+": "+format.Percent(d.Fleet.Shares[1].Share))
	assert.GreaterOrEqual(t, p.Audit.Clean, len(d.Fleet.Shares), "each share is audited")

	page := textOf(t, d)
	assert.Contains(t, page, "Redis "+d.Fleet.Redis)
	assert.Contains(t, page, "-fleet -share 2s -full")
	assert.NotContains(t, textOf(t, reporttest.Made(nil, []float64{1})), `id="fleet"`, "not in other runs")

	d = reporttest.Tables() // a share exceeds its limit
	page = textOf(t, d)
	for _, table := range report.FleetTables(d) {
		assert.Contains(t, page, `id="fleet-`+table.ID+`"`)
		for _, row := range table.Rows {
			for _, cell := range row.Cells[1:] {
				assert.Regexp(t, `<td[^>]*>`+regexp.QuoteMeta(cell)+`</td>`, page)
			}
		}
	}
	assert.Contains(t, page, "Ral broke its promise")
	assert.Contains(t, page, `<tr class="failed">`)
}
