package redisserver

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
	"github.com/ral-limiter/ral/internal/testkit/seeds"
	"github.com/ral-limiter/ral/policy"
)

const generous = time.Minute // spent only by an outage, however busy the machine

func openRedis(t *testing.T) *redisd.Server {
	t.Helper()
	r, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

// at is a fleet of a single server on the Redis.
func at(r *redisd.Server) families.Fleet {
	return families.Fleet{
		Redis: rueidis.ClientOption{InitAddress: []string{r.Addr()}, ForceSingleClient: true},
		Name:  "test", Budget: generous, Servers: 1,
	}
}

func shared(t *testing.T, of families.Fleet) (*Server, *pipes) {
	t.Helper()
	keep, err := families.New(families.Config{Fleet: &of})
	require.NoError(t, err)
	return door(t, Config{Families: keep})
}

func connectShared(t *testing.T, of families.Fleet) *client {
	t.Helper()
	_, l := shared(t, of)
	c := dial(t, l)
	c.do("HELLO 3")
	return c
}

// alike reports whether two replies are equal, except for long times: windows may begin
// differently.
func alike(a, b any) bool {
	switch a := a.(type) {
	case int64:
		b, ok := b.(int64)
		const long = 100_000
		return ok && (a == b || a > long && b > long)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, alike)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, alike)
	}
	return a == b
}

// In any order.
//
// Promise: Redis and engines answer every deciding command alike.
func TestCommandsOverRedisAreThoseOfAnEngine(t *testing.T) {
	_, l := shared(t, at(openRedis(t)))
	over := dial(t, l)
	_, l = door(t, Config{})
	in := dial(t, l)
	seed := seeds.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	one := func(words ...string) string { return words[random.IntN(len(words))] }
	// None drains during the test.
	limit := func() string {
		return one("slow", "login", "funnel_8,_8/300d", "window_6/300d", "sliding_7/300d", "at_most_5/300d", "queue_3,_1/100d")
	}
	key := func() string { return one("a", "b", "c") }
	n := func() string { return one("0", "1", "1", "2", "3", "7", "100", "-1", "x") }
	for step := range 500 {
		command := one(
			fmt.Sprintf("RAL.TAKE %s %s", key(), limit()),
			fmt.Sprintf("RAL.TAKE %s %s %s", key(), limit(), n()),
			fmt.Sprintf("RAL.TAKE %s %s %s %s %s %s", key(), limit(), n(), one("d", "e"), limit(), n()),
			fmt.Sprintf("RAL.PEEK %s %s", key(), limit()),
			fmt.Sprintf("RAL.REFUND %s %s %s", key(), limit(), n()),
			fmt.Sprintf("RAL.WAIT %s %s %s 1", key(), limit(), n()),
			fmt.Sprintf("RAL.RESET %s %s", key(), one("slow", "login", "window_6/300d")),
			fmt.Sprintf("CL.THROTTLE %s 4 1 8640000 %s", key(), n()),
			fmt.Sprintf("DEL %s %s", key(), key()),
			fmt.Sprintf("EXISTS %s %s", key(), key()),
			fmt.Sprintf("TYPE %s", key()),
		)
		if step == 0 {
			command = "HELLO 3"
		}
		want, got := in.do(command), over.do(command)
		if w, ok := want.(map[string]any); ok && step > 0 && w["keys"] != nil && w["allowed"] == false {
			delete(w, "keys") // those that would have taken report their state before giving back
			delete(got.(map[string]any), "keys")
		}
		if step > 0 && !strings.HasPrefix(command, "DEL") { // DEL knows other families if only one was asked about more
			require.True(t, alike(want, got), "seed %d, step %d: %s: %v, and %v in an engine", seed, step, command, got, want)
		}
	}
	assert.Equal(t, replyError("ERR SCAN is not there, as Redis keeps the keys: there, their names begin with ral:test:"), over.do("SCAN 0"))
	assert.Equal(t, replyError("ERR DBSIZE is not there, as Redis keeps the keys: there, their names begin with ral:test:"), over.do("DBSIZE"))
	assert.Contains(t, over.do("RAL.TAKE a window_5/week_in_UTC"), "want a Funnel, Queue")
}

// To the unit, also by several keys at once.
func TestServersShareALimitExactly(t *testing.T) {
	r := openRedis(t)
	var doors []*pipes
	for range 2 {
		of := at(r)
		of.Servers = 2
		_, l := shared(t, of)
		doors = append(doors, l)
	}
	for command, want := range map[string]int64{
		"RAL.TAKE key window_100/300d":                              100,
		"RAL.TAKE key login":                                        3,
		"RAL.TAKE key at_most_70/300d 2":                            35,
		"CL.THROTTLE key 49 1 864000":                               50,
		"RAL.TAKE five funnel_200,_1/10d 2 six window_40/300d 1":    40,
		"RAL.TAKE one funnel_60,_1/10d 2 two sliding_200/300d 5":    30,
		"RAL.TAKE three funnel_90,_1/10d 1 four window_1000/300d 1": 90,
	} {
		var mu sync.Mutex
		var admitted int64
		var group sync.WaitGroup
		for i := range 8 {
			c := dial(t, doors[i%2])
			c.do("HELLO 3")
			group.Go(func() {
				for range 40 {
					allowed := false
					switch reply := c.do(command).(type) {
					case map[string]any:
						allowed = reply["allowed"] == true
					case []any:
						allowed = reply[0] == int64(0)
					default:
						assert.Fail(t, "no decision", "%s: %v", command, reply)
					}
					if allowed {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		assert.Equal(t, want, admitted, command)
	}
	c := dial(t, doors[0])
	c.do("HELLO 3")
	assert.Equal(t, int64(200-2*40), c.do("RAL.PEEK five funnel_200,_1/10d").(map[string]any)["remaining"], "what is refused takes nothing")
}

// They are asked separately, and taken units are given back.
func TestSeveralKeysInACluster(t *testing.T) {
	r, err := redisd.Open(redisd.Config{Args: []string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	admin, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{r.Addr()}, ForceSingleClient: true})
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary("CLUSTER", "ADDSLOTSRANGE", "0", "16383").Build()).Error())
	require.Eventually(t, func() bool {
		state, err := admin.Do(t.Context(), admin.B().Arbitrary("CLUSTER", "INFO").Build()).ToString()
		return err == nil && strings.Contains(state, "cluster_state:ok")
	}, time.Minute, 10*time.Millisecond)
	of := at(r)
	of.Redis.ForceSingleClient = false
	c := connectShared(t, of)
	for i := range 5 {
		got := c.do("RAL.TAKE a window_50/300d 10 b sliding_3/300d 1").(map[string]any)
		assert.Equal(t, i < 3, got["allowed"])
	}
	assert.Equal(t, int64(20), c.do("RAL.PEEK a window_50/300d").(map[string]any)["remaining"])
}

// It delays no connection: all calls are answered meanwhile.
func TestRedisThatStandsStill(t *testing.T) {
	r := openRedis(t)
	of := at(r)
	of.Budget, of.Outage = 500*time.Millisecond, fleet.FallbackOpen
	c := connectShared(t, of)
	c.do("RAL.TAKE a login")
	require.NoError(t, r.Pause())
	for range 50 {
		assert.Equal(t, true, c.do("RAL.TAKE a login").(map[string]any)["allowed"])
		assert.Equal(t, true, c.do("RAL.TAKE a login 1 b login 1").(map[string]any)["allowed"])
	}
	assert.Contains(t, c.do("RAL.RESET a login"), "Redis could not be asked")
	assert.Equal(t, "1", c.info("backend_failing"))
	require.NoError(t, r.Resume())
	c.eventually("backend_failing", "0")
}

func TestRestartOverRedisForgetsNothing(t *testing.T) {
	r := openRedis(t)
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { // the server ends with it
			c := connectShared(t, at(r))
			reply := c.do("RAL.TAKE ann login").(map[string]any)
			assert.Equal(t, i < 3, reply["allowed"], "%v", reply)
		})
	}
}

func (c *client) info(name string) string {
	c.t.Helper()
	_, rest, found := strings.Cut(c.do("INFO").(string), "\r\n"+name+":")
	require.True(c.t, found, name)
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func (c *client) eventually(name, want string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.info(name) == want }, time.Minute, 10*time.Millisecond, "%s:%s", name, want)
}

// INFO shows it. Redis decides again after its return.
//
// Promise: Without Redis calls follow `-outage`.
func TestOutageOverRedis(t *testing.T) {
	for outage, want := range map[fleet.Fallback]int{fleet.FallbackShare: 4, fleet.FallbackOpen: 20, fleet.FallbackClosed: 0} {
		r := openRedis(t)
		of := at(r)
		of.Outage = outage
		t.Run(of.OutageName(), func(t *testing.T) {
			c := connectShared(t, of)
			take := func() bool {
				reply, ok := c.do("RAL.TAKE key window_10/300d").(map[string]any)
				require.True(t, ok)
				return reply["allowed"].(bool)
			}
			for range 6 {
				require.True(t, take())
			}
			assert.Equal(t, "redis", c.info("backend"))
			assert.Equal(t, "0", c.info("backend_failing"))
			assert.Equal(t, of.OutageName(), c.info("backend_outage"))
			r.Kill()
			for range 3 { // the breaker opens
				c.do("RAL.PEEK another window_10/300d")
			}
			c.eventually("backend_failing", "1")
			assert.Contains(t, c.info("backend_error"), "Redis could not be asked")
			admitted := 0
			for range 20 {
				if take() {
					admitted++
				}
			}
			assert.Equal(t, want, admitted)
			refused := c.do("RAL.TAKE key window_10/300d 2 other window_10/300d 1").(map[string]any)
			assert.Equal(t, outage == fleet.FallbackOpen, refused["allowed"])
			assert.Contains(t, c.do("RAL.RESET third window_10/300d"), "Redis could not be asked")
			require.NoError(t, r.Restart())
			c.eventually("backend_failing", "0")
			// Redis has lost its data, and is charged the units that the share admitted.
			if outage == fleet.FallbackShare {
				require.Eventually(t, func() bool {
					reply := c.do("RAL.PEEK key window_10/300d").(map[string]any)
					return reply["remaining"] == int64(6)
				}, time.Minute, 10*time.Millisecond)
			} else {
				for range 10 {
					require.True(t, take())
				}
				assert.False(t, take())
			}
		})
	}
}

// It is no error, and Redis decides when it comes.
func TestRedisIsAwayAtTheStart(t *testing.T) {
	r := openRedis(t)
	r.Kill()
	of := at(r)
	of.Outage = fleet.FallbackClosed
	c := connectShared(t, of)
	refused := c.do("RAL.TAKE ann login").(map[string]any)
	assert.Equal(t, false, refused["allowed"])
	assert.Equal(t, "1", c.info("backend_failing"))
	require.NoError(t, r.Restart())
	c.eventually("backend_failing", "0")
	for i := range 4 {
		assert.Equal(t, i < 3, c.do("RAL.TAKE ann login").(map[string]any)["allowed"])
	}
}

// Each limit counts separately, and most calls cost Redis nothing.
//
// Promise: Leases never exceed the limit; unleasable limits are exact.
func TestLeasedMode(t *testing.T) {
	r := openRedis(t)
	var doors []*pipes
	for range 2 {
		of := at(r)
		of.Servers, of.Leased = 2, true
		_, l := shared(t, of)
		doors = append(doors, l)
	}
	var mu sync.Mutex
	admitted := 0
	var group sync.WaitGroup
	var all []*client
	for i := range 4 {
		c := dial(t, doors[i%2])
		c.do("HELLO 3")
		all = append(all, c)
		group.Go(func() {
			for range 1000 {
				if c.do("RAL.TAKE key window_3000/300d").(map[string]any)["allowed"] == true {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	assert.LessOrEqual(t, admitted, 3000)
	assert.Greater(t, admitted, 8, "more than are decided by Redis before units are leased")
	c := all[0]
	assert.Equal(t, "leased", c.info("backend_mode"))
	stats := c.info("window_3000/300d")
	assert.Contains(t, stats, "leased=")
	assert.NotContains(t, stats, "leased=0,")
	assert.Equal(t, true, c.do("RAL.TAKE key window_2000/300d").(map[string]any)["allowed"], "another limit")
	for i := range 5 {
		got := c.do("RAL.TAKE key at_most_3/300d 1 key window_4/300d_aligned 1")
		require.IsType(t, map[string]any{}, got)
		assert.Equal(t, i < 3, got.(map[string]any)["allowed"])
	}
	for i := range 3 {
		got := c.do("RAL.TAKE other at_most_2/300d 1 other window_4000/300d 1")
		assert.Equal(t, i < 2, got.(map[string]any)["allowed"])
	}
}

// Clients make up the limits. The error names the bound.
func TestTooManyLimitsOverRedis(t *testing.T) {
	of := at(openRedis(t))
	of.Outage = fleet.FallbackOpen // which keeps nothing of each
	keep, err := families.New(families.Config{Fleet: &of, Most: 2})
	require.NoError(t, err)
	c := connect3(t, Config{Families: keep, Limits: limitsOf(t, keep, "")})
	for i := range 1024 {
		require.IsType(t, map[string]any{}, c.do(fmt.Sprintf("RAL.PEEK a window_%d/300d", i+2)))
	}
	for _, command := range []string{"RAL.TAKE a window_2000/300d", "RAL.WAIT a window_2000/300d 1 1", "RAL.TAKE a window_2000/300d 1 b window_2/300d 1"} {
		assert.Contains(t, c.do(command), "too many different limits came with calls", command)
	}
	assert.Contains(t, c.do("RAL.TAKE a sliding_1/m"), "no room for another family of limits")
	_, err = keep.Keep(policy.Must(policy.Parse("sliding 1/m")))
	require.NoError(t, err, "a configured one has room")
	require.IsType(t, map[string]any{}, c.do("RAL.TAKE a sliding_1/m"))
}

// With an error, not with an answer.
func TestClosedOverRedis(t *testing.T) {
	of := at(openRedis(t))
	keep, err := families.New(families.Config{Fleet: &of})
	require.NoError(t, err)
	family, err := keep.Of(policy.Must(policy.Parse("funnel 5, 1/s")))
	require.NoError(t, err)
	require.NoError(t, keep.Close())
	_, err = family.TakeWith(t.Context(), policy.Must(policy.Parse("funnel 5, 1/s")), "a", 1)
	assert.True(t, errors.Is(err, engine.ErrClosed), "%v", err)
	_, err = keep.Of(policy.Must(policy.Parse("window 5/s")))
	assert.Error(t, err)
}
