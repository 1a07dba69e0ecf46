package eventlog_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/observe/eventlog"
)

// With the number left out before. Topics are independent, and errors from others.
//
// Promise: Each topic's last record is true in the end.
func TestLastWordOfEachTopicIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, to := plain(slog.LevelInfo)
		log := eventlog.New(logger)
		for i := range 10 {
			log.Record(slog.LevelInfo, fmt.Sprint(i))
		}
		require.Len(t, to.Drain(), 10)
		for i := range 13 {
			log.State("a", slog.LevelInfo, fmt.Sprint("a is ", i))
		}
		log.State("b", slog.LevelInfo, "b is 1", slog.Int("of", 2))
		assert.Empty(t, to.Drain())
		time.Sleep(6*time.Second - 1)
		synctest.Wait()
		assert.Empty(t, to.Drain())
		time.Sleep(1)
		synctest.Wait()
		assert.Equal(t, []string{`level=INFO msg="a is 12" more_of_this=12`}, to.Drain())
		time.Sleep(6 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{`level=INFO msg="b is 1" of=2`}, to.Drain())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, to.Drain(), "once")
	})
}

// A record of another level replaces a pending record.
func TestStateThatIsOverIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, least := range []slog.Level{slog.LevelInfo, slog.LevelError} {
			logger, to := plain(least)
			log := eventlog.New(logger)
			for range 10 {
				log.Record(slog.LevelError, "an error")
			}
			to.Drain()
			log.State("a", slog.LevelError, "a fails")
			log.State("a", slog.LevelInfo, "a is well")
			time.Sleep(time.Hour)
			synctest.Wait()
			if least == slog.LevelInfo {
				assert.Equal(t, []string{`level=INFO msg="a is well" more_of_this=1`}, to.Drain())
			} else {
				assert.Empty(t, to.Drain(), "what is not enabled is not written, and what is over neither")
			}
		}
	})
}

type switching struct{ calls atomic.Int64 }

func (s *switching) Health() error {
	if n := s.calls.Add(1); n%2 == 1 {
		return fmt.Errorf("at call %d", n)
	}
	return nil
}

// Racing calls of a Health function get their records in order, and the last is true.
func TestHealthIsWrittenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, to := plain(slog.LevelInfo)
		var of switching
		check := eventlog.New(logger).Health("api", &of)
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				for range 25 {
					_ = check()
				}
			})
		}
		calls.Wait()
		// The 201st check fails.
		_ = check()
		time.Sleep(time.Hour)
		synctest.Wait()
		got := to.Drain()
		require.NotEmpty(t, got)
		was := 0
		for i, line := range got {
			index := 0
			if _, found := fmt.Sscanf(line[max(strings.Index(line, "at call"), 0):], "at call %d", &index); found == nil {
				assert.Greater(t, index, was, "record %d", i)
				was = index
			}
		}
		assert.Contains(t, got[len(got)-1], `error="at call 201" more_of_this=`)
	})
}

// The newest record of a topic is the next of its level. A flood of the other level goes on.
func TestFloodHoldsUpNoTopic(t *testing.T) {
	// The flood or the timer may run first.
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			logger, to := plain(slog.LevelInfo)
			log := eventlog.New(logger)
			flood := func() {
				for range 20 {
					log.Record(slog.LevelError, "flood")
				}
			}
			flood()
			require.Len(t, to.Drain(), 10)
			log.State("saves", slog.LevelError, "saves fail")
			log.Record(slog.LevelInfo, "of another level")
			assert.Equal(t, []string{`level=INFO msg="of another level"`}, to.Drain())
			time.AfterFunc(6*time.Second, flood)
			time.Sleep(6 * time.Second)
			synctest.Wait()
			assert.Contains(t, strings.Join(to.Drain(), "\n"), "saves fail")
			time.Sleep(6 * time.Second)
			flood()
			assert.Contains(t, strings.Join(to.Drain(), "\n"), "flood", "then others come again")
		})
	}
}
