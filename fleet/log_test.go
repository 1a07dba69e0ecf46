package fleet

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/eventlog"
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
		{Kind: SharePassed, Err: errors.New("80%")}, {Kind: HookFailed, Err: errors.New("panic")},
	} {
		tell(e)
	}
	var got []string
	for line := range strings.Lines(to.String()) {
		before, why, is := strings.Cut(strings.TrimSpace(line), " error=")
		if !is {
			before, why, _ = strings.Cut(before, " warning=")
		}
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
		`level=WARN msg="ral: a key has passed a share of its limit" limit=api`,
		`level=ERROR msg="ral: the hook of warnings failed" limit=api`,
	}, got)
}

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

// Without OnEvent an outage is logged before New returns, or after a second of silence.
func TestRedisThatIsNotThereIsLogged(t *testing.T) {
	for w, waits := range map[redistest.Weather]time.Duration{gone: 0, hole: connectBudget, {Mute: true}: connectBudget} {
		inBubbleOf(t, shared, func(t *testing.T, line *redistest.Line) {
			line.Set(w)
			c := over(line, funnel(1, 1, time.Hour))
			begun := time.Now()
			silent := launch(t, c)
			require.Equal(t, waits, time.Since(begun))
			eventually(t, func() bool { return len(loggedAbout(c.Name)) > 0 }, "it is in the log")
			lines := loggedAbout(c.Name)
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], "level=ERROR msg=\"ral: outage began\"")
			require.Contains(t, lines[0], shared.Addr())
			require.NoError(t, silent.Close())

			c.Name = name()
			began := make(chan error, 1)
			c.OnEvent = func(e Event) {
				if e.Kind == OutageBegan {
					began <- e.Err
				}
			}
			l := launch(t, c)
			require.ErrorContains(t, <-began, shared.Addr())
			require.Empty(t, loggedAbout(c.Name))
			line.Set(well)
			eventually(t, func() bool { return take(t, l, "a", 0).Source() == limits.SourceRedis }, "it connects by itself")
		})
	}
}

// Promise: With `RequireRedis`, `New` fails if no Redis answers.
func TestRedisThatIsRequired(t *testing.T) {
	refuses, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, refuses.Close())
	for _, mode := range []Mode{Exact, Leased} {
		c := at(refuses.Addr().String(), funnel(1000, 1000, time.Second))
		c.Mode, c.RequireRedis = mode, true
		l, err := New(c)
		require.Nil(t, l)
		require.ErrorIs(t, err, ErrOutage)
		require.ErrorContains(t, err, "RequireRedis")
		require.ErrorContains(t, err, refuses.Addr().String())

		c.Redis.InitAddress = []string{shared.Addr()}
		// A busy machine may take more than a second.
		for l == nil {
			if l, err = New(c); err != nil {
				require.ErrorIs(t, err, ErrOutage)
			}
		}
		require.NoError(t, l.Close())
	}
}
