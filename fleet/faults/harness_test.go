package faults

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/policy"
)

// shared is the Redis of all tests, which break the way to it only. Each test has limits of
// its own names.
var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(withRedis(m)) }

func withRedis(m *testing.M) int {
	zerolog.SetGlobalLevel(zerolog.Disabled) // of the proxies
	var err error
	if shared, err = redistest.Open(redistest.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(shared.Close(), goleak.Find(others...)); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// others are goroutines that are left, and not the limiters': a client that looked for a
// cluster sleeps for a second when it is closed, and a proxy forgets some of what it sends.
var others = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
}

var names atomic.Int64

// name returns a limit's name that no other test has.
func name() string { return fmt.Sprintf("faults-%d-%d", os.Getpid(), names.Add(1)) }

// at returns a configuration for the Redis behind the wire.
func at(w *wire, p policy.Policy) fleet.Config {
	const generous = 2 * time.Second // which only an outage spends, whatever else the machine does
	return fleet.Config{Name: name(), Policy: p, Budget: generous, Redis: w.option()}
}

// open starts a limiter, waits until Redis is asked, and closes it with the test.
func open(t testing.TB, c fleet.Config) *fleet.Limiter {
	t.Helper()
	l, err := fleet.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	eventually(t, func() bool { return l.Health() == nil }, "Redis is there")
	return l
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

// take takes, and fails if that is an error.
func take(t testing.TB, l *fleet.Limiter, key string, n int64) fleet.Answer {
	t.Helper()
	a, err := l.Take(t.Context(), key, n)
	require.NoError(t, err)
	return a
}

// log keeps the kinds of events.
type log struct {
	mu  sync.Mutex
	all []fleet.EventKind
}

func (l *log) add(e fleet.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e.Kind)
}

func (l *log) kinds() []fleet.EventKind {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]fleet.EventKind(nil), l.all...)
}

// patience is for slow machines that do much else: what takes longer does not come.
const patience = time.Minute

// eventually waits for what another goroutine or process does.
func eventually(t testing.TB, done func() bool, what string) {
	t.Helper()
	require.Eventually(t, done, patience, 2*time.Millisecond, what)
}
