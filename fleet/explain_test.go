package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
)

func certified(t *testing.T) (certificate, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	public := must.Get(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))
	secret := must.Get(x509.MarshalPKCS8PrivateKey(private))
	write := func(kind string, bytes []byte) string {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return name
	}
	return write("CERTIFICATE", public), write("PRIVATE KEY", secret)
}

// Promise: `Health` advises on each state of Redis.
func TestErrorsSayTheNextStep(t *testing.T) {
	t.Parallel()
	certificate, key := certified(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	require.NoError(t, free.Close())
	redis := redistest.Start(t, redistest.Options{Args: []string{
		"--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no",
	}})
	byTLS := net.JoinHostPort("127.0.0.1", port)
	_, listed, _ := strings.Cut(store.ErrDenied.Error(), "allow it ")
	listed, _, _ = strings.Cut(listed, " and sorted sets")
	for user, rules := range map[string]string{
		"off":        "off nopass ~* +@all",
		"known":      "on >secret ~* +@all",
		"elsewhere":  "on nopass ~other:* +@all",
		"scriptless": "on nopass ~* +@all -evalsha",
		"reader":     "on nopass ~* +@all -set",
		"listed":     "on nopass ~ral:* +@sortedset +" + strings.ReplaceAll(strings.ToLower(listed), ", ", " +"),
	} {
		redis.Do(t, append([]string{"ACL", "SETUSER", user}, strings.Fields(rules)...)...)
	}
	closed := redistest.Start(t, redistest.Options{})
	closed.Do(t, "CONFIG", "SET", "requirepass", "secret")

	full := redistest.Start(t, redistest.Options{Args: []string{"--bind", "0.0.0.0"}})
	busy := full.Client(t)
	require.NoError(t, busy.Do(t.Context(), busy.B().Arbitrary("CONFIG", "SET", "maxclients", "1").Build()).Error())
	guarded := redistest.Start(t, redistest.Options{Args: []string{"--bind", "0.0.0.0"}})

	as := func(user, password string) func(*rueidis.ClientOption) {
		return func(o *rueidis.ClientOption) { o.Username, o.Password = user, password }
	}
	// The test is whether TLS is spoken.
	trusting := &tls.Config{InsecureSkipVerify: true}
	for _, c := range []struct {
		name string
		addr string
		with func(*rueidis.ClientOption)
		// kind is nil if all is well.
		kind error
		says string
	}{
		{"no password", closed.Addr(), as("", ""), store.ErrLogin, "set Username and Password"},
		{"wrong password", redis.Addr(), as("known", "guess"), store.ErrLogin, "set Username and Password"},
		{"user that is off", redis.Addr(), as("off", "any"), store.ErrLogin, "a user that is on"},
		{"right password", redis.Addr(), as("known", "secret"), nil, ""},
		{"other keys", redis.Addr(), as("elsewhere", "any"), store.ErrDenied, "on the keys ral:*"},
		{"no scripts", redis.Addr(), as("scriptless", "any"), store.ErrDenied, "allow it EVALSHA"},
		{"no commands in scripts", redis.Addr(), as("reader", "any"), store.ErrDenied, "SET"},
		{"what the error lists", redis.Addr(), as("listed", "any"), nil, ""},
		{"too many clients", full.Addr(), as("", ""), store.ErrTooManyClients, "max number of clients reached"},
		{"protected mode", elsewhere(t, guarded.Addr()), as("", ""), store.ErrProtected, "set its protected-mode to no"},
		{"plain to TLS", byTLS, func(*rueidis.ClientOption) {}, store.ErrSpeaksTLS, "set Redis.TLSConfig"},
		{"TLS to plain", redis.Addr(), func(o *rueidis.ClientOption) { o.TLSConfig = trusting }, store.ErrPlain, "leave out Redis.TLSConfig"},
		{"TLS to TLS", byTLS, func(o *rueidis.ClientOption) { o.TLSConfig = trusting }, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := at(c.addr, funnel(10, 1, time.Hour))
			// TLS is given up after that time.
			config.Redis.Dialer.Timeout = 500 * time.Millisecond
			c.with(&config.Redis)
			l := launch(t, config)
			if c.kind == nil {
				eventually(t, func() bool { return l.Health() == nil }, "it is asked")
				require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
				client := must.Get(rueidis.NewClient(l.config.Redis))
				defer client.Close()
				require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error(), "clients send PING by themselves, so Redis must accept it")
				return
			}
			eventually(t, func() bool {
				take(t, l, "a", 1)
				why := l.Health()
				return why != nil && strings.Contains(why.Error(), c.says)
			}, "Health says what to do")
			eventually(t, func() bool {
				cause := take(t, l, "a", 1).Err()
				return cause != nil && strings.Contains(cause.Error(), c.says)
			}, "so do answers")
			why := l.Health()
			// The keeper may do what calls may not.
			if why == nil {
				return
			}
			require.ErrorIs(t, why, c.kind)
			require.ErrorIs(t, why, ErrOutage)
		})
	}
}

// elsewhere is another address of this machine, which a Redis in protected mode refuses.
func elsewhere(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for _, a := range must.Get(net.InterfaceAddrs()) {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return net.JoinHostPort(ip.IP.String(), port)
		}
	}
	t.Skip("this machine has no other address than that of the loopback interface")
	return ""
}

// When Redis ends connections and takes no more, its reply to a new connection is told.
func TestSaysWhyItHangsUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	var events log
	c := at(redis.Addr(), funnel(10, 1, time.Hour))
	c.OnEvent = events.add
	l := open(t, c)
	admin := redis.Client(t)
	command := func(words ...string) {
		require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary(words[0]).Args(words[1:]...).Build()).Error())
	}
	command("CONFIG", "SET", "maxclients", "1")
	command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	eventually(t, func() bool {
		cause := take(t, l, "a", 1).Err()
		return errors.Is(cause, ErrBreakerOpen) && errors.Is(cause, store.ErrTooManyClients)
	}, "answers say so")
	require.ErrorIs(t, l.Health(), ErrOutage)
	require.ErrorContains(t, l.Health(), "max number of clients reached")
	eventually(t, func() bool {
		return slices.ContainsFunc(events.events(), func(e Event) bool {
			return e.Kind == OutageBegan && errors.Is(e.Err, store.ErrTooManyClients)
		})
	}, "an event says so")
	command("CONFIG", "SET", "maxclients", "100")
	eventually(t, func() bool { return take(t, l, "a", 0).Source() == limits.SourceRedis }, "it is back")
}

// Promise: A Redis that may evict is noticed at connection.
func TestEvictionIsNoticedAtConnect(t *testing.T) {
	t.Parallel()
	evicts := redistest.Start(t, redistest.Options{MaxMemory: "100mb", Policy: "allkeys-lru"})
	first := redistest.Start(t, redistest.Options{})
	var behind atomic.Pointer[redistest.Server]
	behind.Store(first)
	c := at(first.Addr(), funnel(10, 1, time.Hour))
	c.Redis.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", behind.Load().Addr())
	}
	l := open(t, c)
	before := scripts(t, evicts)
	behind.Store(evicts)
	first.Kill()
	eventually(t, func() bool { return errors.Is(l.Health(), ErrEvictionPolicy) }, "it is noticed")
	require.LessOrEqual(t, scripts(t, evicts)-before, int64(3), "more scripts ran than the beats and the keys that Redis did not know need")
}
