package eventlog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// plain returns a logger to a buffer, without times.
func plain(at slog.Level) (*slog.Logger, *logbuffer.Buffer) {
	to := &logbuffer.Buffer{}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: at, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), to
}

// Promise: The log has restarts, degradation, failed saves and outages.
func TestEventsAreWrittenByTheirMeaning(t *testing.T) {
	logger, to := plain(slog.LevelInfo)
	died := errors.New("it died")
	for _, c := range []struct {
		event engine.Event
		want  string
	}{
		{engine.Event{Kind: supervisor.ChildStarted, Child: "writer"}, ""},
		{engine.Event{Kind: supervisor.ChildExited, Child: "writer", Err: died}, ""},
		{engine.Event{Kind: supervisor.ChildStopped, Child: "writer"}, ""},
		{engine.Event{Kind: supervisor.ChildRestarting, Child: "writer", Err: died, Missed: 2},
			`level=WARN msg="ral: a goroutine of the limiter is restarted" limit=api goroutine=writer error="it died" missed=2`},
		{engine.Event{Kind: supervisor.Escalated, Err: died},
			`level=ERROR msg="ral: the limiter is degraded: it records no new key from now on" limit=api error="it died"`},
		{engine.Event{Kind: supervisor.ChildAbandoned, Child: "saver"},
			`level=ERROR msg="ral: a goroutine of the limiter does not end" limit=api goroutine=saver`},
		{engine.Event{Kind: supervisor.AbandonedEnded, Child: "saver"}, `level=INFO msg="ral: abandoned child ended" limit=api goroutine=saver`},
		{engine.Event{Kind: supervisor.ChildFailing, Child: "saver", Err: died},
			`level=ERROR msg="ral: the state of the limiter is not saved" limit=api goroutine=saver error="it died"`},
		{engine.Event{Kind: supervisor.ChildRecovered, Child: "saver"}, `level=INFO msg="ral: the state of the limiter is saved again" limit=api goroutine=saver`},
		{engine.Event{Kind: supervisor.ChildFailing, Child: "keeper", Err: died},
			`level=ERROR msg="ral: the work of a goroutine of the limiter fails" limit=api goroutine=keeper error="it died"`},
		{engine.Event{Kind: supervisor.ChildRecovered, Child: "keeper"},
			`level=INFO msg="ral: the work of a goroutine of the limiter succeeds again" limit=api goroutine=keeper`},
		{engine.Event{Kind: supervisor.OwnFault, Err: died}, `level=ERROR msg="ral: own fault" limit=api error="it died"`},
		{engine.Event{Kind: supervisor.Notice, Err: errors.New("key 0a has passed 80% of its limit, 20 of 100 left")},
			`level=WARN msg="ral: a key has passed a share of its limit" limit=api warning="key 0a has passed 80% of its limit, 20 of 100 left"`},
		{engine.Event{Kind: supervisor.HookFault, Err: died}, `level=ERROR msg="ral: hook fault" limit=api error="it died"`},
	} {
		c.event.Supervisor = "api"
		eventlog.New(logger).Engine(c.event)
		assert.Equal(t, c.want, strings.Join(to.Drain(), "\n"), c.event.Kind)
	}
}

// Promise: Records come at a bounded rate; warnings hide no error.
func TestRecordsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, to := plain(slog.LevelInfo)
		log := eventlog.New(logger)
		for i := range 1000 {
			log.Record(slog.LevelWarn, fmt.Sprint("warning ", i))
		}
		got := to.Drain()
		require.Len(t, got, 10)
		assert.Equal(t, `level=WARN msg="warning 9"`, got[9])
		log.Record(slog.LevelDebug, "not enabled, and not left out")
		log.Record(slog.LevelError, "an error")
		assert.Equal(t, []string{`level=ERROR msg="an error"`}, to.Drain(), "warnings hide no error")
		time.Sleep(6*time.Second - 1)
		log.Record(slog.LevelInfo, "too early")
		assert.Empty(t, to.Drain())
		time.Sleep(1)
		log.Record(slog.LevelInfo, "next")
		assert.Equal(t, []string{`level=INFO msg=next left_out=991`}, to.Drain())
		time.Sleep(time.Hour)
		for range 1000 {
			log.Record(slog.LevelInfo, "again")
		}
		assert.Len(t, to.Drain(), 10)
	})
}

type health struct{ err error }

func (h *health) Health() error { return h.err }

func TestHealthIsWrittenWhenItChanges(t *testing.T) {
	logger, to := plain(slog.LevelInfo)
	var state health
	check := eventlog.New(logger).Health("api", &state)
	require.NoError(t, check())
	assert.Empty(t, to.Drain())
	state.err = engine.ErrUnhealthy
	for range 3 {
		require.ErrorIs(t, check(), engine.ErrUnhealthy)
	}
	got := to.Drain()
	require.Len(t, got, 1)
	assert.Contains(t, got[0], `level=ERROR msg="ral: the limiter is not healthy" limit=api error="ral: the engine is unhealthy`)
	state.err = engine.ErrUnsaved
	require.ErrorIs(t, check(), engine.ErrUnsaved)
	assert.Len(t, to.Drain(), 1, "another error")
	state.err = nil
	require.NoError(t, check())
	require.NoError(t, check())
	assert.Equal(t, []string{`level=INFO msg="ral: the limiter is healthy again" limit=api`}, to.Drain())
}

func TestZeroLogWritesToTheDefault(t *testing.T) {
	was := slog.Default()
	defer slog.SetDefault(was)
	logger, to := plain(slog.LevelInfo)
	slog.SetDefault(logger)
	var log eventlog.Log
	log.Record(slog.LevelInfo, "one")
	eventlog.New(nil).Record(slog.LevelInfo, "two")
	assert.Equal(t, []string{"level=INFO msg=one", "level=INFO msg=two"}, to.Drain())
}

func ExampleLog_Engine() {
	log := eventlog.New(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			// The output is the same each time.
			return slog.Attr{}
		}
		return a
	}})))
	limiter, err := engine.New[string](engine.Config{Name: "api", Policy: policy.Must(policy.Funnel(1, 1, time.Hour)), OnEvent: log.Engine})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	// A panic of the writer.
	log.Engine(engine.Event{Kind: supervisor.ChildRestarting, Supervisor: "api", Child: "writer", Err: errors.New("it died")})
	// Output: level=WARN msg="ral: a goroutine of the limiter is restarted" limit=api goroutine=writer error="it died"
}
