package fleet

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
)

// Requests of 16 callers are held to two limits with a Config.Redis each. The first has room, so it
// refuses none because the second is full.
// Promise: Limits of equal `Config.Redis` are taken all or nothing, and none refuses a request for another's sake.
func TestAFullLimitLeavesTheFirstAlone(t *testing.T) {
	first, second := open(t, at(shared.Addr(), funnel(8, 1, time.Hour))), open(t, at(shared.Addr(), window(3, time.Hour)))
	var mu sync.Mutex
	binding := map[string]int{}
	h := both(t, first, second, httplimit.Options{OnVerdict: func(_ *http.Request, v limits.Verdict) {
		mu.Lock()
		defer mu.Unlock()
		if !v.Reason.Passes() {
			binding[v.Limit]++
		}
	}})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 100 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			}
		})
	}
	all.Wait()
	require.Equal(t, map[string]int{"second": 16*100 - 3}, binding)
	require.EqualValues(t, 5, inRedis(t, first, key(t)))
}

// both returns a handler under two limits of one key.
func both(t *testing.T, first, second limits.Limiter[string], o httplimit.Options) http.Handler {
	t.Helper()
	by := func(*http.Request) string { return key(t) }
	return httplimit.Must(httplimit.NewAll(o,
		httplimit.Limit[string]{Name: "first", Limiter: first, Key: by},
		httplimit.Limit[string]{Name: "second", Limiter: second, Key: by})).Handler(nothing)
}

func key(t *testing.T) string { return t.Name() }

// Options with a function, or a field that differs, have a client of their own.
// Promise: Limiters with equal `Config.Redis` share a client until the last is closed.
func TestEqualOptionsShareAClient(t *testing.T) {
	option := at(shared.Addr(), funnel(10, 1, time.Hour)).Redis
	// The configuration is not used.
	option.Sentinel.TLSConfig = &tls.Config{}
	launched := func(o rueidis.ClientOption) *Limiter {
		c := at(shared.Addr(), funnel(10, 1, time.Hour))
		c.Redis = o
		return must.Get(New(c))
	}
	first := launched(option)
	equal := option
	equal.InitAddress = []string{shared.Addr()}
	second := launched(equal)
	require.True(t, first.SharesClient(second))
	for name, change := range map[string]func(o *rueidis.ClientOption){
		"a function":        func(o *rueidis.ClientOption) { o.OnInvalidations = func([]rueidis.RedisMessage) {} },
		"a dialer's":        func(o *rueidis.ClientOption) { o.Dialer.Resolver = &net.Resolver{} },
		"a pointer":         func(o *rueidis.ClientOption) { o.Sentinel.TLSConfig = &tls.Config{} },
		"a name":            func(o *rueidis.ClientOption) { o.ClientName = "other" },
		"a database":        func(o *rueidis.ClientOption) { o.SelectDB = 1 },
		"one more address":  func(o *rueidis.ClientOption) { o.InitAddress = []string{shared.Addr(), shared.Addr()} },
		"no AUTH by a func": func(o *rueidis.ClientOption) { o.AuthCredentialsFn = noCredentials },
	} {
		other := option
		change(&other)
		l, again := launched(other), launched(other)
		require.False(t, first.SharesClient(l), name)
		require.Equal(t, name != "a function" && name != "no AUTH by a func", again.SharesClient(l), name)
		require.NoError(t, l.Close())
		require.NoError(t, again.Close())
	}
	client := second.remote.Load().client
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	require.Equal(t, limits.SourceRedis, take(t, second, "a", 1).Source(), "the second limiter must still be connected")
	require.NoError(t, second.Close())
	require.ErrorIs(t, client.Do(t.Context(), client.B().Ping().Build()).Error(), rueidis.ErrClosing)

	// A limiter may outlive the limiter of its Via, and one of a closed limiter connects again.
	origin := launched(option)
	through := open(t, via(origin, window(5, time.Hour)))
	require.NoError(t, origin.Close())
	require.Equal(t, limits.SourceRedis, take(t, through, "a", 1).Source())
	require.NoError(t, through.Close())
	again := open(t, via(origin, window(5, time.Hour)))
	require.Equal(t, limits.SourceRedis, take(t, again, "a", 1).Source())
}

func noCredentials(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	return rueidis.AuthCredentials{}, nil
}

// The limiter that dials first is closed while Redis does not answer. The other's attempt goes on.
func TestCloseLeavesOthersConnecting(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			accepted <- conn
		}
	}()
	c := at(listener.Addr().String(), funnel(10, 1, time.Hour))
	first, second := must.Get(New(c)), must.Get(New(c))
	require.ErrorIs(t, first.Health(), errConnecting)
	require.NoError(t, first.Close())
	require.EqualValues(t, 1, second.conn.dials.Load(), "both limiters must share an attempt to connect")
	require.NoError(t, (<-accepted).Close())
	require.NoError(t, (<-accepted).Close(), "the other limiter must connect again")
	require.NoError(t, listener.Close())
	for conn := range accepted {
		require.NoError(t, conn.Close())
	}
	require.NoError(t, second.Close())
}

// Promise: `NewAll` warns of limits over a fleet that have several clients.
func TestNewAllWarnsOfSeveralClients(t *testing.T) {
	c := at(shared.Addr(), funnel(10, 1, time.Hour))
	first, equal := open(t, c), open(t, c)
	c.Redis.ClientName = "other"
	other := open(t, c)
	c.Redis.ClientName, c.Epoch = "", time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Name = name()
	sooner := open(t, c)
	for _, test := range []struct {
		second *Limiter
		warns  bool
	}{{equal, false}, {other, true}, {sooner, true}} {
		var log logbuffer.Buffer
		both(t, first, test.second, httplimit.Options{Logger: log.Logger()})
		if !test.warns {
			require.Empty(t, log.Lines())
			continue
		}
		require.Len(t, log.Lines(), 1)
		require.Contains(t, log.Lines()[0], "level="+slog.LevelWarn.String())
		require.Contains(t, log.Lines()[0], "limit=first other=second")
	}
	before := len(logged.Lines())
	both(t, first, other, httplimit.Options{})
	require.Contains(t, logged.Lines()[before], "have different clients", "without a logger the warning must go to the default logger")
}

// Promise: A single Redis is not asked for the slots of a cluster, which its ACL may forbid.
func TestSingleRedisIsNotAskedForSlots(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	redis.Do(t, "ACL", "SETUSER", "limits", "on", ">secret", "~ral:*", "-@all",
		"+evalsha", "+eval", "+del", "+time", "+info", "+ping", "+get", "+mget", "+set", "+pexpireat", "+@sortedset")
	c := at(redis.Addr(), funnel(10, 1, time.Hour))
	c.Redis.ForceSingleClient, c.Redis.Username, c.Redis.Password = false, "limits", "secret"
	l := open(t, c)
	require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
	log, stats := redis.Do(t, "ACL", "LOG"), redis.Do(t, "INFO", "commandstats")
	require.Empty(t, must.Get(log.ToArray()))
	require.NotContains(t, must.Get(stats.ToString()), "cluster")
}
