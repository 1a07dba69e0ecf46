package fleet

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/eventlog"
)

func TestEventsAreWrittenToTheLog(t *testing.T) {
	var to bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	tell := LogEvents("api", eventlog.New(logger))
	for _, e := range []Event{
		{Kind: OutageBegan, Err: ErrSilent}, {Kind: OutageEnded}, {Kind: ChargedLocal, Units: 7}, {Kind: Unchecked, Err: ErrReadOnly},
		{Kind: LimitDeploying, Err: ErrLimits}, {Kind: LimitConflict, Err: ErrLimits}, {Kind: LimitAgreed}, {Kind: StateUnsaved, Err: ErrStateFile},
	} {
		tell(e)
	}
	var got []string
	for line := range strings.Lines(to.String()) {
		before, why, _ := strings.Cut(strings.TrimSpace(line), " error=")
		if strings.Contains(before, "level=ERROR") || strings.Contains(before, "level=WARN") {
			assert.NotEmpty(t, why, line)
		}
		got = append(got, before)
	}
	assert.Equal(t, []string{
		`level=ERROR msg="ral: outage began" limit=api`,
		`level=INFO msg="ral: outage ended" limit=api`,
		`level=INFO msg="ral: charged" limit=api units=7`,
		`level=WARN msg="ral: unchecked" limit=api`,
		`level=WARN msg="ral: limit deploying" limit=api`,
		`level=ERROR msg="ral: limit conflict" limit=api`,
		`level=INFO msg="ral: limit agreed" limit=api`,
		`level=ERROR msg="ral: state unsaved" limit=api`,
	}, got)
}
