package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// shared is a Redis for all tests that do not harm it. Each test has its own names.
var shared *redistest.Server

func TestMain(m *testing.M) {
	if os.Getenv(serverJobVariable) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(withRedis(m))
}

// logged gets the events of limiters without OnEvent.
var logged logbuffer.Buffer

// loggedAbout returns the lines about a limit.
func loggedAbout(limit string) []string {
	return slices.DeleteFunc(logged.Lines(), func(line string) bool { return !strings.Contains(line, "limit="+limit+" ") })
}

func withRedis(m *testing.M) int {
	slog.SetDefault(logged.Logger())
	var err error
	if shared, err = redistest.Open(redistest.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	var cause error
	if slices.ContainsFunc(logged.Lines(), tells) {
		cause = errors.New("a log has a key")
	}
	if err := errors.Join(cause, shared.Close(), goleak.Find(others...)); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// others are not our goroutines: a closed client that looked for a cluster sleeps for a second.
var others = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
}

var names atomic.Int64

func name() string { return fmt.Sprintf("test-%d-%d", os.Getpid(), names.Add(1)) }

var (
	gone  = redistest.Weather{Gone: true}
	still = redistest.Weather{Deaf: true}
	well  = redistest.Weather{}
)

// inBubble runs a test in a bubble of testing/synctest, with a Redis in memory.
func inBubble(t *testing.T, test func(t *testing.T, redis *storetest.Redis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// The store is full.
		time.Sleep(time.Until(store.DefaultEpoch.AddDate(0, 9, 0)))
		redis := storetest.New()
		// The weather ends calls on their way.
		t.Cleanup(func() { redis.Set(gone) })
		test(t, redis)
	})
}

// on returns a configuration for a Redis in memory.
func on(redis *storetest.Redis, p policy.Policy) Config {
	return Config{Name: name(), Policy: p, fake: func(o store.Options) decider { return redis.Store(o) }}
}

// via returns a configuration for the Redis of another limiter.
func via(l *Limiter, p policy.Policy) Config {
	return Config{Name: name(), Policy: p, Via: l, Budget: generous}
}

// inBubbleOf runs a test in a bubble of testing/synctest, with a line to a Redis.
func inBubbleOf(t *testing.T, redis *redistest.Server, test func(t *testing.T, line *redistest.Line)) {
	t.Helper()
	inBubbleOfAll(t, []*redistest.Server{redis}, func(t *testing.T, lines []*redistest.Line) { test(t, lines[0]) })
}

func inBubbleOfAll(t *testing.T, cluster []*redistest.Server, test func(t *testing.T, lines []*redistest.Line)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(store.DefaultEpoch.AddDate(0, 1, 0)))
		// A client lets go of other connections later.
		t.Cleanup(func() { time.Sleep(2 * time.Second) })
		var lines []*redistest.Line
		for _, redis := range cluster {
			lines = append(lines, redistest.NewLine(redis))
		}
		test(t, lines)
	})
}

// over returns a configuration for the Redis at the end of the line.
func over(line *redistest.Line, p policy.Policy) Config { return overAll([]*redistest.Line{line}, p) }

func overAll(lines []*redistest.Line, p policy.Policy) Config {
	return Config{Name: name(), Policy: p, Redis: redistest.Option(lines...), clock: now}
}

// now is the clock of a bubble, for scripts.
func now() int64 { return time.Now().UnixMicro() - store.DefaultEpoch.UnixMicro() }

// generous is a budget that only an outage spends, whatever else the machine does.
const generous = time.Minute

func at(addr string, p policy.Policy) Config {
	return Config{
		Name: name(), Policy: p, Budget: generous,
		Redis: rueidis.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, ConnWriteTimeout: generous, Dialer: net.Dialer{Timeout: generous},
		},
	}
}

// open starts a limiter, waits until it asks Redis, and closes it with the test.
func open(t testing.TB, c Config) *Limiter {
	t.Helper()
	l := launch(t, c)
	eventually(t, func() bool { return l.Health() == nil }, "Redis is there")
	return l
}

// launch is open for a Redis that may be unfit or gone.
func launch(t testing.TB, c Config) *Limiter {
	t.Helper()
	l := must.Get(New(c))
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

func take(t testing.TB, l *Limiter, key string, n int64) limits.Answer {
	a := must.Get(l.Take(t.Context(), key, n))
	if a.Err() != nil || key == canary {
		for _, err := range []error{a.Err(), l.Health()} {
			require.False(t, tells(fmt.Sprint(err)), "%v", err)
		}
	}
	return a
}

// canary is in the keys of tests of faults. No log, event or error of any test has it.
const canary = "sk-live-canary"

func tells(text string) bool { return strings.Contains(text, canary) }

// inRedis returns the units left of a key by Redis. A connection may fail once more after an
// outage, so that a look is answered without it.
func inRedis(t testing.TB, l *Limiter, key string) (left int64) {
	t.Helper()
	eventually(t, func() bool {
		a := take(t, l, key, 0)
		left = a.Remaining
		return a.Source() == limits.SourceRedis
	}, "Redis answers")
	return left
}

type log struct {
	mu  sync.Mutex
	all []Event
}

func (l *log) add(e Event) {
	if tells(fmt.Sprint(e.Err)) {
		panic(e.Err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *log) events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.all...)
}

func (l *log) kinds() (kinds []EventKind) {
	for _, e := range l.events() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// patience is for slow machines that do much else.
const patience = time.Minute

func eventually(t testing.TB, done func() bool, what string) {
	t.Helper()
	require.Eventually(t, done, patience, 2*time.Millisecond, what)
}
