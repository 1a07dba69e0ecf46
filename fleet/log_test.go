package fleet

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		{Kind: LimitDeploying, Err: ErrLimits}, {Kind: LimitConflict, Err: ErrLimits}, {Kind: LimitAgreed}, {Kind: StateUnsaved, Err: ErrStateFile}, {Kind: StateSaved},
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
		`level=INFO msg="ral: state saved" limit=api`,
	}, got)
}

// Outages that come and go faster than they may be written: the last word is true, whatever else
// was left out.
func TestLastWordOfAnOutageIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var to bytes.Buffer
		tell := LogEvents("api", eventlog.New(slog.New(slog.NewTextHandler(&to, nil))))
		for range 100 {
			tell(Event{Kind: OutageBegan, Err: ErrSilent})
			tell(Event{Kind: StateUnsaved, Err: ErrStateFile})
			tell(Event{Kind: LimitConflict, Err: ErrLimits})
			tell(Event{Kind: OutageEnded})
			tell(Event{Kind: StateSaved})
			tell(Event{Kind: LimitAgreed})
		}
		tell(Event{Kind: OutageBegan, Err: ErrSilent})
		time.Sleep(time.Minute)
		synctest.Wait()
		for last, other := range map[string]string{"outage began": "outage ended", "state saved": "state unsaved", "limit agreed": "limit conflict"} {
			assert.Greater(t, strings.LastIndex(to.String(), last), strings.LastIndex(to.String(), other), last)
		}
		assert.Contains(t, to.String(), "more_of_this=")
		assert.Less(t, strings.Count(to.String(), "\n"), 60)
	})
}
