package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/policy"
)

// shared is a Redis for all tests that do not harm it. Each test has limits of its own
// names.
var shared *redistest.Server

func TestMain(m *testing.M) {
	if isBusy() {
		if err := serveBusy(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if isServer() {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(mixedJob) != "" {
		if err := serveMixed(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(webServerJob) != "" {
		if err := serveWeb(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(withRedis(m))
}

func withRedis(m *testing.M) int {
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

// others are goroutines that are left, and not ours: a client that looked for a cluster
// sleeps for a second when it is closed.
var others = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
}

var names atomic.Int64

// name is a limit's name that no other test has.
func name() string { return fmt.Sprintf("test-%d-%d", os.Getpid(), names.Add(1)) }

// lag is by how much, in nanoseconds, what Redis says is late for a client that is connected
// by option. Module faults has all that can go wrong on the way.
type lag struct{ atomic.Int64 }

// option returns o with connections that lag.
func (l *lag) option(o rueidis.ClientOption) rueidis.ClientOption {
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return lagging{conn, l}, nil
	}
	return o
}

// lagging is a connection on which what arrives is read later.
type lagging struct {
	net.Conn
	lag *lag
}

func (c lagging) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Duration(c.lag.Load()))
	return n, err
}

// generous is a budget that only an outage spends, whatever else the machine does.
const generous = 20 * time.Second

// at returns a configuration for the Redis at that address.
func at(addr string, p policy.Policy) Config {
	return Config{
		Name: name(), Policy: p, Budget: generous,
		Redis: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
	}
}

// open starts a limiter where a Redis is fit for it, waits until that is asked, and closes
// it with the test.
func open(t testing.TB, c Config) *Limiter {
	t.Helper()
	l := launch(t, c)
	eventually(t, func() bool { return l.Health() == nil }, "Redis is there")
	return l
}

// launch is open where Redis may not be fit, or not be there.
func launch(t testing.TB, c Config) *Limiter {
	t.Helper()
	l, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

// take takes, and fails if that is an error.
func take(t testing.TB, l *Limiter, key string, n int64) Answer {
	t.Helper()
	a, err := l.Take(t.Context(), key, n)
	require.NoError(t, err)
	return a
}

// log keeps events.
type log struct {
	mu  sync.Mutex
	all []Event
}

func (l *log) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *log) events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.all...)
}

// kinds are the events but those of a kind.
func (l *log) kinds() (kinds []EventKind) {
	for _, e := range l.events() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// patience is for slow machines that do much else: what takes longer does not come.
const patience = time.Minute

// eventually waits for what another goroutine or process does.
func eventually(t testing.TB, done func() bool, what string) {
	t.Helper()
	require.Eventually(t, done, patience, 2*time.Millisecond, what)
}
