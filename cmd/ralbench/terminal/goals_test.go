package terminal

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func TestGoalsFitTheWidth(t *testing.T) {
	d := reporttest.Run(t)
	d.Workloads = append(d.Workloads, reporttest.Calls())
	table := report.GoalTable(d)
	require.NotEmpty(t, table.Rows)
	for _, width := range []int{80, 100, 120, 200} { // its figures need more than 60
		var b strings.Builder
		require.NoError(t, WriteGoals(&b, d, width))
		assertFits(t, b.String(), width)
		for _, row := range table.Rows {
			assert.Contains(t, b.String(), row.Cells[3])
		}
		assert.Contains(t, b.String(), " of "+strconv.Itoa(len(table.Rows))+" reached.")
		assert.Contains(t, b.String(), "Trust: ")
	}

	var b strings.Builder
	require.NoError(t, WriteGoals(&b, report.Document{}, 100))
	assert.Contains(t, b.String(), "No goal is about the measured figures.")
}
