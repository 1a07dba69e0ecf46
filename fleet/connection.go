package fleet

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet/internal/store"
)

// connection is one client of Redis and the limiters that use it: those of equal options, of one
// Config.Client, or by Config.Via. A client that the connection made is closed with its last
// limiter.
type connection struct {
	endpoint
	// dials counts the connections that the client made.
	dials atomic.Int64

	// The lock of connections guards the rest.
	// users are the ways of the limiters that use the connection.
	users map[*access]bool
	// client is nil until dial has made it.
	client rueidis.Client
	// attempt is under way, or nil.
	attempt *attempt
	ctx     context.Context
	stop    context.CancelFunc
}

// endpoint is the part of a Config that says where Redis is. One of its fields is set.
type endpoint struct {
	given rueidis.Client
	redis rueidis.ClientOption
	fake  func(store.Options) decider
}

// attempt makes a client. Its results may be read when done is closed.
type attempt struct {
	done   chan struct{}
	client rueidis.Client
	err    error
}

// connections are all connections that have limiters.
var connections struct {
	sync.Mutex
	all []*connection
}

// connect adds a limiter's access to the connection of its configuration.
func connect(a *access, config Config) *connection {
	connections.Lock()
	defer connections.Unlock()
	to := &connection{endpoint: endpoint{config.Client, config.Redis, config.fake}, users: map[*access]bool{}}
	if via := config.Via; via != nil {
		to = via.conn
	} else if at := slices.IndexFunc(connections.all, func(other *connection) bool { return other.equal(to.endpoint) }); at >= 0 {
		to = connections.all[at]
	}
	if len(to.users) == 0 {
		to.ctx, to.stop = context.WithCancel(context.Background())
		connections.all = append(connections.all, to)
	}
	to.users[a] = true
	return to
}

// equal reports whether both lead to the same Redis in the same way, as far as that can be told.
func (e endpoint) equal(other endpoint) bool {
	return equalValues(reflect.ValueOf(e), reflect.ValueOf(other))
}

// equalValues compares two values of one type. Functions are equal only if none is set, and
// pointers only if both are the same.
func equalValues(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return a.IsNil() && b.IsNil()
	case reflect.Struct:
		for i := range a.NumField() {
			if !equalValues(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !equalValues(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return a.Comparable() && b.Comparable() && a.Equal(b)
}

// leave takes the limiter off the connection. The last limiter waits for an attempt under way, at
// most Dialer.Timeout for each address, and closes the client.
func (c *connection) leave(access *access) {
	connections.Lock()
	delete(c.users, access)
	if len(c.users) > 0 {
		connections.Unlock()
		return
	}
	connections.all = slices.DeleteFunc(connections.all, func(other *connection) bool { return other == c })
	client, pending := c.client, c.attempt
	c.client, c.attempt = nil, nil
	c.stop()
	connections.Unlock()
	if pending != nil {
		<-pending.done
		client = pending.client
	}
	if client != nil {
		client.Close()
	}
}

// open returns the client, or the reason that there is none yet. Limiters that ask at once share an
// attempt to make one. open calls late if that takes longer than connectBudget.
func (c *connection) open(ctx context.Context, late func()) (rueidis.Client, error) {
	if c.given != nil || c.fake != nil {
		return c.given, nil
	}
	connections.Lock()
	if c.client != nil {
		defer connections.Unlock()
		return c.client, nil
	}
	pending := c.attempt
	if pending == nil {
		pending = &attempt{done: make(chan struct{})}
		c.attempt = pending
		go c.dial(c.ctx, pending)
	}
	connections.Unlock()
	timer := time.NewTimer(connectBudget)
	defer timer.Stop()
	for {
		select {
		case <-pending.done:
			return pending.client, pending.err
		case <-timer.C:
			late()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// dial makes the client. ctx is of the limiters that want the client.
func (c *connection) dial(ctx context.Context, attempt *attempt) {
	defer close(attempt.done)
	client, err := newClient(ctx, c.counted())
	if err != nil {
		if client != nil {
			client.Close()
		}
		if attempt.err = err; ctx.Err() == nil {
			attempt.err = store.Connecting(ctx, c.redis, err)
		}
	} else {
		attempt.client = client
	}
	connections.Lock()
	defer connections.Unlock()
	// Otherwise the last limiter has left, and closes the client.
	if c.attempt == attempt {
		c.client, c.attempt = attempt.client, nil
	}
}

// newClient makes a client, and does not ask a Redis for slots if that says it is no cluster: its
// ACL may forbid that.
func newClient(ctx context.Context, clientOption rueidis.ClientOption) (rueidis.Client, error) {
	single := clientOption
	single.ForceSingleClient = true
	if len(clientOption.InitAddress) > 1 || clientOption.ForceSingleClient || clientOption.Sentinel.MasterSet != "" || clientOption.Standalone.EnableRedirect || len(clientOption.Standalone.ReplicaAddress) > 0 {
		return rueidis.NewClient(clientOption)
	}
	client, err := rueidis.NewClient(single)
	if err != nil {
		return client, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectBudget)
	defer cancel()
	if info, _ := client.Do(ctx, client.B().Info().Section("server").Build()).ToString(); strings.Contains(info, "redis_mode:standalone") {
		return client, nil
	}
	client.Close()
	return rueidis.NewClient(clientOption)
}

// counted returns options that count connections, and wake the keepers at each: Redis may be another
// then, or set up otherwise.
func (c *connection) counted() rueidis.ClientOption {
	option := c.redis
	// ShuffleInit changes the addresses.
	option.InitAddress = slices.Clone(option.InitAddress)
	option.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		to := c.redis
		to.InitAddress, to.Dialer, to.TLSConfig = []string{addr}, *dialer, config
		conn, err := store.Dial(ctx, to)
		if err == nil {
			c.dials.Add(1)
			connections.Lock()
			defer connections.Unlock()
			for access := range c.users {
				access.nudge()
			}
		}
		return conn, err
	}
	return option
}
