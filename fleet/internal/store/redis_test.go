package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func ask(t testing.TB, client rueidis.Client, words ...string) rueidis.RedisResult {
	t.Helper()
	return client.Do(context.Background(), client.B().Arbitrary(words...).Build())
}

func integer(t testing.TB, client rueidis.Client, words ...string) int64 {
	t.Helper()
	return must.Get(ask(t, client, words...).AsInt64())
}

// Each write sets the key's end at the debt's, or up to a millisecond later. Reads and refusals
// keep it.
// Promise: No key expires before its debt.
func TestKeysLastAsLongAsTheDebt(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	epoch := time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	limits := append(wordPolicies(), newLog(t, 10, time.Second), newLog(t, 10, 1500*time.Microsecond+1),
		policy.Must(policy.Funnel(100, 1, 3*time.Hour)), policy.Must(policy.Funnel(1000, 999_983, time.Second)),
		policy.Must(policy.FixedWindow(10, 366*24*time.Hour)), policy.Must(policy.SlidingWindow(10, 366*24*time.Hour)),
		policy.Must(policy.SlidingWindow(10, 333_333*time.Microsecond)),
		policy.Must(policy.FixedWindow(10, 1_234_567)))
	for _, p := range limits {
		t.Run(p.String(), func(t *testing.T) {
			s := store.New(client, store.Options{Name: own(t), Epoch: epoch})
			l := limit(t, s, p)
			key := name(t, s, l, "k")
			check := func(what string, taken store.Taken) {
				t.Helper()
				if taken.ResetAfter == 0 {
					// Without a debt nothing was written.
					return
				}
				end := integer(t, client, "PEXPIRETIME", key) - epoch.UnixMilli()
				if end == -2-epoch.UnixMilli() {
					// It may be gone if the debt is.
					now := policy.Instant(time.Since(epoch)) // wall: it has gone before
					require.GreaterOrEqual(t, now, taken.At+policy.Instant(taken.ResetAfter), what)
					return
				}
				fresh := taken.At + policy.Instant(taken.ResetAfter)
				assert.GreaterOrEqual(t, policy.Instant(end)*1e6, fresh, what)
				assert.Less(t, policy.Instant(end)*1e6, fresh+1e6, what)
			}
			// Some of the takes are refused.
			for i := range 15 {
				taken := must.Get(s.Take(ctx, l, "k", 1, time.Hour))
				require.True(t, taken.Allowed || i > 0, "%+v", taken)
				check("a take", taken)
			}
			all := must.Get(s.TakeAll(ctx, []store.Ask{{Limit: l, Key: "all", N: 1}}))
			key = name(t, s, l, "all")
			check("all", all[0])
			key = name(t, s, l, "k")
			charged := must.Get(s.Refund(ctx, l, "k", -2))
			check("a charge", charged)
			// A log may last longer than its rest.
			if _, words := p.(shape.Shaped); words {
				back := must.Get(s.Refund(ctx, l, "k", 1))
				check("a refund", back)
				mine := must.Get(s.Take(ctx, l, "k", 1, math.MaxInt64))
				back = must.Get(s.Cancel(ctx, l, "k", mine, 1))
				check("the last take cancelled", back)
				mine = must.Get(s.Take(ctx, l, "k", 1, math.MaxInt64))
				must.Get(s.Take(ctx, l, "k", 2, math.MaxInt64))
				back = must.Get(s.Cancel(ctx, l, "k", mine, 1))
				check("another cancelled", back)
			}
			leased := s.Lease(ctx, []store.LeaseAsk{{Limit: l, Key: "lease", Need: 1, Most: 3}})[0]
			if err := leased.Err; err == nil {
				key = name(t, s, l, "lease")
				check("a lease", leased.Taken)
			} else {
				assert.ErrorContains(t, err, "want a Funnel")
			}
		})
	}
}

func TestScriptsAreForgotten(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := connect(t, server)
	ctx := context.Background()
	s := store.New(client, store.Options{Name: "forgotten"})
	funnel, log := limit(t, s, policy.Must(policy.Funnel(1000, 1, time.Hour))), limit(t, s, newLog(t, 1000, time.Hour))
	flush := func() { require.NoError(t, ask(t, client, "SCRIPT", "FLUSH").Error()) }
	for range 3 {
		flush()
		must.Get(s.Take(ctx, funnel, "k", 1, 0))
		flush()
		must.Get(s.Take(ctx, log, "k", 1, 0))
		flush()
		must.Get(s.TakeAll(ctx, []store.Ask{{Limit: funnel, Key: "k", N: 1}, {Limit: log, Key: "k", N: 1}}))
		flush()
		replies := s.Lease(ctx, []store.LeaseAsk{{Limit: funnel, Key: "k", Need: 1, Most: 2}, {Limit: funnel, Key: "k", Need: 1, Most: 3}})
		require.NoError(t, replies[0].Err)
		require.NoError(t, replies[1].Err)
		flush()
		must.Get(s.Refund(ctx, funnel, "k", 1))
		flush()
		must.Get(s.Heartbeat(ctx, store.Beat{ID: "a", TTL: time.Second}))
	}
	assert.EqualValues(t, 1000-3*(1+1+5-1), must.Get(s.Peek(ctx, funnel, "k")).Remaining, "all was counted, and once")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				must.Get(s.Take(ctx, funnel, strconv.Itoa(i), 1, 0))
			}
		})
	}
	for range 20 {
		flush()
	}
	group.Wait()
	for i := range 8 {
		assert.EqualValues(t, 950, must.Get(s.Peek(ctx, funnel, strconv.Itoa(i))).Remaining)
	}
}

// Foreign values under a limit's names stay, and make an error.
func TestForeignValuesAreLeftAlone(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	s := store.New(client, store.Options{Name: own(t)})
	for i, value := range []string{
		"", " ", "abc", "-1", "+1", "01", "0x10", "1e5", "1.5", "12.", " 12", "12 ", "12\x00", "inf", "nan",
		"9223372036854775792", "9223372036854775807", "9223372036854775808", "10000000000000000000", "99999999999999999999",
		"0000000000000000001", "00", strings.Repeat("9", 400), "1234567890 234567890", "\xff\xfe", "1\n2", strings.Repeat("x", 1<<20),
	} {
		for _, p := range wordPolicies() {
			l, key := limit(t, s, p), strconv.Itoa(i)
			redisName := name(t, s, l, key)
			put(t, client, redisName, value)
			_, took := s.Take(ctx, l, key, 1, 0)
			_, peeked := s.Peek(ctx, l, key)
			_, all := s.TakeAll(ctx, []store.Ask{{Limit: l, Key: "other", N: 1}, {Limit: l, Key: key, N: 1}})
			_, charged := s.Refund(ctx, l, key, -1)
			_, cancelled := s.Cancel(ctx, l, key, store.Taken{After: 5}, 1)
			for _, err := range []error{took, peeked, all, charged, cancelled} {
				assert.ErrorIs(t, err, store.ErrForeignValue, "%.50q", value)
				assert.ErrorContains(t, err, "for key "+store.Fingerprint(store.Tail(key)))
				assert.NotContains(t, err.Error(), redisName)
				assert.Less(t, len(fmt.Sprint(err)), 1000)
			}
			if leased := s.Lease(ctx, []store.LeaseAsk{{Limit: l, Key: key, Need: 1, Most: 2}})[0].Err; !assert.Error(t, leased) || !strings.Contains(leased.Error(), "want a Funnel") {
				assert.ErrorIs(t, leased, store.ErrForeignValue)
			}
			assert.Equal(t, value, get(t, client, redisName), "%v", p)
			assert.EqualValues(t, -1, integer(t, client, "PTTL", redisName), "it has no end, as before")
			assert.Zero(t, integer(t, client, "EXISTS", name(t, s, l, "other")), "all or nothing")
		}
	}
	// The same for a log.
	log := limit(t, s, newLog(t, 10, time.Second))
	for i, member := range [][2]string{{"12", "abc"}, {"1.5", "100000000000001"}, {"inf", "100000000000001"}, {"-3", "100000000000001"}, {"1e300", "100000000000001"}, {"4503599627370496", "100000000000001"}, {"576460752303424", "100000000000001"}, {"1702360659606047", "100000000000001"}} {
		key := fmt.Sprint("set", i)
		redisName := name(t, s, log, key)
		require.NoError(t, ask(t, client, "ZADD", redisName, member[0], member[1]).Error())
		_, err := s.Take(ctx, log, key, 1, 0)
		assert.ErrorIs(t, err, store.ErrForeignValue, "%v", member)
		_, err = s.Refund(ctx, log, key, 1)
		assert.ErrorIs(t, err, store.ErrForeignValue, "%v", member)
		_, err = s.TakeAll(ctx, []store.Ask{{Limit: log, Key: key, N: 1}})
		assert.ErrorIs(t, err, store.ErrForeignValue, "%v", member)
		assert.EqualValues(t, 1, integer(t, client, "ZCARD", redisName))
	}
	for _, l := range []*store.Limit{limit(t, s, policy.Must(policy.Funnel(10, 1, time.Second))), log} {
		redisName := name(t, s, l, "list")
		require.NoError(t, ask(t, client, "RPUSH", redisName, "a").Error())
		_, err := s.Take(ctx, l, "list", 1, 0)
		assert.ErrorIs(t, err, store.ErrForeignValue)
		assert.ErrorContains(t, err, "for key "+store.Fingerprint(store.Tail("list")))
		_, err = s.Refund(ctx, l, "list", 1)
		assert.ErrorIs(t, err, store.ErrForeignValue)
		_, err = s.TakeAll(ctx, []store.Ask{{Limit: l, Key: "list", N: 1}})
		assert.ErrorIs(t, err, store.ErrForeignValue)
		assert.EqualValues(t, 1, integer(t, client, "LLEN", redisName))
	}
}

func TestReplicaIsRefusedAsReadOnly(t *testing.T) {
	primary := redistest.Start(t, redistest.Options{})
	replica := primary.Replica(t)
	s := store.New(connect(t, replica), store.Options{Name: "replica"})
	for _, p := range append(wordPolicies(), newLog(t, 10, time.Second)) {
		l := limit(t, s, p)
		_, err := s.Take(context.Background(), l, "k", 1, 0)
		assert.ErrorIs(t, err, store.ErrReadOnly, "%v", p)
		assert.ErrorContains(t, err, "connect to the primary")
	}
	assert.ErrorIs(t, s.Check(context.Background(), time.Second), store.ErrReadOnly)
}

// Calls that would write fail; refusals are still refusals.
func TestFullMemoryFailsCallsThatWrite(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := connect(t, server)
	ctx := context.Background()
	s := store.New(client, store.Options{Name: "full"})
	var limits []*store.Limit
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(1, 1, time.Hour)), policy.Must(policy.Queue(0, 1, time.Hour)), policy.Must(policy.Bursty(1, time.Hour, 0)),
		policy.Must(policy.FixedWindow(1, time.Hour)), policy.Must(policy.SlidingWindow(1, time.Hour)), newLog(t, 1, time.Hour),
	} {
		l := limit(t, s, p)
		require.True(t, must.Get(s.Take(ctx, l, "old", 1, 0)).Allowed)
		limits = append(limits, l)
	}
	require.NoError(t, ask(t, client, "CONFIG", "SET", "maxmemory", "1").Error())
	for _, l := range limits {
		assert.False(t, must.Get(s.Take(ctx, l, "old", 1, 0)).Allowed)
		_, err := s.Take(ctx, l, "new", 1, 0)
		assert.ErrorIs(t, err, store.ErrFull, "%v", l.Policy())
		_, err = s.TakeAll(ctx, []store.Ask{{Limit: l, Key: "new", N: 1}})
		assert.ErrorIs(t, err, store.ErrFull, "%v", l.Policy())
	}
	assert.ErrorIs(t, s.Check(ctx, time.Minute), store.ErrFull)
	_, err := s.Heartbeat(ctx, store.Beat{ID: "a", TTL: time.Second, Keep: time.Minute, Limit: "1"})
	assert.ErrorIs(t, err, store.ErrFull, "a beat is refused like a take")
	require.NoError(t, ask(t, client, "CONFIG", "SET", "maxmemory", "100mb").Error())
	assert.NoError(t, s.Check(ctx, time.Minute), "noeviction is as it should be")
	for _, l := range limits {
		assert.True(t, must.Get(s.Take(ctx, l, "new", 1, 0)).Allowed, "nothing was taken meanwhile")
	}
}

func TestCheckFindsEviction(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := connect(t, server)
	ctx := context.Background()
	s := store.New(client, store.Options{Name: "check"})
	require.NoError(t, s.Check(ctx, time.Minute))
	for _, how := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		require.NoError(t, ask(t, client, "CONFIG", "SET", "maxmemory-policy", how).Error())
		require.NoError(t, ask(t, client, "CONFIG", "SET", "maxmemory", "0").Error())
		assert.NoError(t, s.Check(ctx, time.Minute), "nothing is evicted without a maxmemory")
		require.NoError(t, ask(t, client, "CONFIG", "SET", "maxmemory", "100mb").Error())
		err := s.Check(ctx, time.Minute)
		assert.ErrorIs(t, err, store.ErrEvictionPolicy)
		assert.ErrorContains(t, err, how)
	}
	require.NoError(t, ask(t, client, "ACL", "SETUSER", "default", "-info").Error())
	assert.ErrorIs(t, s.Check(ctx, time.Minute), store.ErrUnchecked)
}

// Promise: Any bytes are a key, distinct from all others.
func TestAnyBytesAreADistinctKey(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	long := strings.Repeat("k", 1<<16)
	keys := []string{
		"", " ", "{", "}", "{}", "}{", "{a}", "a}", "{a", "a}b", "a{b}c", "#{a}", "#", "#{", "\x00", "a\x00", "\x00a", "\xff", "\xff\xfe\xfd",
		"\r\n", "a\r\nb", "$5\r\nhello\r\n", "*", "?", "[a]", "日本", "ral:", "'", `"`, "--", long, long[1:], long[:129], long[:128], long[:127],
		long[:1<<16-1] + "}", "T}{k", "T}#{k",
	}
	// The hashes of the keys are keys, too.
	for _, key := range keys {
		sum := sha256.Sum256([]byte(key))
		keys = append(keys, base64.RawURLEncoding.EncodeToString(sum[:]))
	}
	for _, tag := range []string{"", "T"} {
		s := store.New(client, store.Options{Name: own(t), Tag: tag})
		for _, p := range []policy.Policy{policy.Must(policy.Funnel(1, 1, time.Hour)), newLog(t, 1, time.Hour)} {
			l := limit(t, s, p)
			names := map[string]string{}
			for _, key := range keys {
				n := name(t, s, l, key)
				other, taken := names[n]
				require.False(t, taken, "%.20q is %.20q", key, other)
				names[n] = key
				assert.Less(t, len(n), 300)
				d, err := s.Take(ctx, l, key, 1, 0)
				require.NoError(t, err, "%.20q", key)
				assert.True(t, d.Allowed, "%.20q", key)
				d, err = s.Take(ctx, l, key, 1, 0)
				require.NoError(t, err, "%.20q", key)
				assert.False(t, d.Allowed, "%.20q", key)
			}
			_, err := s.Take(ctx, l, long+"k", 1, 0)
			assert.ErrorIs(t, err, store.ErrKeyTooLong)
			assert.ErrorContains(t, err, "65537")
		}
	}
}

// A cluster places a key by its first braces: the key, its hash, or the limit's tag.
func TestNameHasKeyTagAndFamily(t *testing.T) {
	client := connect(t, shared)
	funnel := policy.Must(policy.Funnel(1, 1, time.Hour))
	s := store.New(client, store.Options{Name: "api"})
	assert.Equal(t, "ral:api:f:{k}", name(t, s, limit(t, s, funnel), "k"))
	for _, key := range []string{"", "a}b", strings.Repeat("k", 129)} {
		assert.Regexp(t, `^ral:api:f:#\{[A-Za-z0-9_-]{43}\}$`, name(t, s, limit(t, s, funnel), key))
	}
	s = store.New(client, store.Options{Name: "api", Tag: "T"})
	assert.Equal(t, "ral:api:f:{T}{k}", name(t, s, limit(t, s, funnel), "k"))
	names := map[string]policy.Policy{}
	for _, p := range append(wordPolicies(), newLog(t, 5, time.Second), newLog(t, 5, time.Minute),
		policy.Must(policy.FixedWindow(10, time.Minute)), policy.Must(policy.FixedWindow(1_000_000, 2*time.Millisecond)),
		policy.Must(policy.FixedWindow(10, 2*time.Millisecond)), policy.Must(policy.SlidingWindow(10, time.Minute))) {
		n := name(t, s, limit(t, s, p), "k")
		assert.NotContains(t, names, n, "%v and %v", p, names[n])
		names[n] = p
	}
	for _, p := range wordPolicies() {
		for _, q := range wordPolicies() {
			same := name(t, s, limit(t, s, p), "k") == name(t, s, limit(t, s, q), "k")
			assert.Equal(t, p.(policy.Relative).Reads(q), same)
		}
	}
}

// A cluster decides several keys at once if a tag keeps them together, and a key of several
// limits.
func TestClusterDecidesTaggedKeysAtOnce(t *testing.T) {
	nodes := redistest.StartCluster(t, redistest.Options{})
	client := must.Get(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{nodes[0].Addr()}, DisableCache: true}))
	t.Cleanup(client.Close)
	require.Equal(t, rueidis.ClientModeCluster, client.Mode())
	ctx := context.Background()
	funnel := policy.Must(policy.Funnel(3, 1, time.Hour))

	s := store.New(client, store.Options{Name: "apart"})
	l, log := limit(t, s, funnel), limit(t, s, newLog(t, 3, time.Hour))
	for range 3 {
		for i := range 30 {
			assert.True(t, must.Get(s.Take(ctx, l, strconv.Itoa(i), 1, 0)).Allowed)
		}
	}
	var asks []store.LeaseAsk
	for i := range 30 {
		assert.False(t, must.Get(s.Take(ctx, l, strconv.Itoa(i), 1, 0)).Allowed)
		asks = append(asks, store.LeaseAsk{Limit: l, Key: fmt.Sprint("leased", i), Need: 1, Most: 2})
	}
	for _, r := range s.Lease(ctx, asks) {
		require.NoError(t, r.Err)
		assert.EqualValues(t, 2, r.Granted)
	}
	_, err := s.TakeAll(ctx, []store.Ask{{Limit: l, Key: "a", N: 1}, {Limit: l, Key: "b", N: 1}})
	assert.ErrorIs(t, err, store.ErrCrossSlot)
	assert.ErrorContains(t, err, "set Config.Tag")
	var all []store.Taken
	for _, key := range []string{"a", "", "{", "}", "{}", "}{", "a{b", strings.Repeat("k", 129)} {
		all, err = s.TakeAll(ctx, []store.Ask{{Limit: l, Key: key, N: 1}, {Limit: log, Key: key, N: 1}})
		require.NoError(t, err, key)
		assert.True(t, all[0].Allowed && all[1].Allowed, key)
	}

	s = store.New(client, store.Options{Name: "together", Tag: "T"})
	l = limit(t, s, funnel)
	for i := range 4 {
		all = must.Get(s.TakeAll(ctx, []store.Ask{{Limit: l, Key: "a", N: 1}, {Limit: l, Key: "b}c", N: 1}}))
		assert.Equal(t, i < 3, all[0].Allowed && all[1].Allowed)
	}
	must.Get(s.Heartbeat(ctx, store.Beat{ID: "a", TTL: time.Second}))

	// A node that is away or slow is not unfit.
	synctest.Test(t, func(t *testing.T) {
		var lines []*redistest.Line
		for _, node := range nodes {
			lines = append(lines, redistest.NewLine(node))
		}
		connect := func() *store.Store {
			client := must.Get(rueidis.NewClient(redistest.Option(lines...)))
			t.Cleanup(func() {
				client.Close()
				// The client's goroutines end by then.
				time.Sleep(time.Minute)
			})
			return store.New(client, store.Options{Name: "bubble"})
		}
		s := connect()
		check := func(want error, why string) {
			t.Helper()
			err := s.Check(t.Context(), time.Second)
			assert.ErrorIs(t, err, want, why)
			if want != nil && want != store.ErrAsking {
				assert.ErrorContains(t, err, nodes[0].Addr())
			}
		}
		check(nil, "all is well")
		lines[2].Set(redistest.Weather{Hole: true})
		assert.NoError(t, connect().Check(t.Context(), time.Second), "one is slow to connect")
		lines[2].Set(redistest.Weather{Gone: true})
		check(nil, "one is away")
		nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "1")
		check(store.ErrFull, "one is full")
		nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "100mb")
		nodes[0].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		nodes[1].Do(t, "ACL", "SETUSER", "default", "-info")
		// The answers come in any order.
		for range 10 {
			check(store.ErrEvictionPolicy, "one is unfit")
		}
		nodes[0].Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		assert.ErrorIs(t, s.Check(t.Context(), time.Second), store.ErrUnchecked, "one does not tell")
		lines[0].Set(redistest.Weather{Gone: true})
		lines[1].Set(redistest.Weather{Gone: true})
		check(store.ErrAsking, "none answers")
	})
}

// Redis 6.2 puts the place of failure before the cause, and a sign before its own codes.
func TestErrorsOfRedis62AreRecognized(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	for says, want := range map[string]error{
		"-READONLY You can't write against a read only replica.":             store.ErrReadOnly,
		"-OOM command not allowed when used memory > 'maxmemory'.":           store.ErrFull,
		"-NOREPLICAS Not enough good replicas to write.":                     store.ErrNoReplicas,
		"-MISCONF Redis is configured to save RDB snapshots, but":            store.ErrUnsaved,
		"WRONGTYPE Operation against a key holding the wrong kind of value":  store.ErrForeignValue,
		"The user executing the script can't run this command or subcommand": store.ErrDenied,
		"-LOADING Redis is loading the dataset in memory":                    store.ErrLoading,
		"Unknown Redis command called from Lua script":                       store.ErrAsking,
	} {
		where := "ERR Error running script (call to f_82cd): @user_script:1: @user_script: 1: "
		l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Hour)))
		s.Corrupt(l, fmt.Sprintf("redis.error_reply(%q)", where+says))
		_, err := s.Refund(context.Background(), l, "k", 1)
		assert.ErrorIs(t, err, want, says)
	}
}

// A decision of the script that the policy contradicts is an error.
func TestContradictedDecisionIsAnError(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	s := store.New(client, store.Options{Name: own(t)})
	for _, reply := range []string{"{'9000000000000000000', 1, 1}", "{false, 1, 0}", "{1}", "{{}}", "{false, false, 1}", "{false, 1, 'a'}", "'OK'",
		"{false, 1, 0, 0, 0}", "{false, 1, 0, 3, 600000000}", "{false, 1, 0, 'a', 0}"} {
		l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Hour)))
		s.Corrupt(l, reply)
		_, err := s.Take(ctx, l, "k", 1, 0)
		assert.Error(t, err, reply)
		if strings.Contains(reply, ", 1, ") && !strings.Contains(reply, "'a'") {
			assert.ErrorIs(t, err, store.ErrDisagrees, reply)
		}
		assert.Error(t, s.Lease(ctx, []store.LeaseAsk{{Limit: l, Key: "k", Need: 1, Most: 2}})[0].Err, reply)
		_, err = s.Refund(ctx, l, "k", -1)
		assert.Error(t, err, reply)
	}
}

// It is asked for each key alone after it refused several.
func TestTakeEachOfAHiddenCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, redistest.Options{})
	for _, single := range []bool{false, true} {
		client := must.Get(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{nodes[0].Addr()}, DisableCache: true, ForceSingleClient: single}))
		defer client.Close()
		s := store.New(client, store.Options{Name: own(t)})
		l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Hour)))
		asks := make([]store.TakeAsk, 50)
		for i := range asks {
			asks[i] = store.TakeAsk{Limit: l, Key: strconv.Itoa(i), N: 1}
		}
		for want := int64(9); want > 6; want-- {
			answered, calls := 0, 0
			s.TakeEach(t.Context(), asks, func(_ int, taken store.Taken, err error) {
				calls++
				if err == nil {
					answered++
					require.Equal(t, want, taken.Remaining)
				} else {
					require.ErrorContains(t, err, "MOVED")
				}
			})
			require.Equal(t, len(asks), calls)
			// A single node has a third of the keys.
			if single {
				require.Positive(t, answered)
			} else {
				require.Equal(t, len(asks), answered)
			}
		}
	}
}

// Many calls for a key are answered like calls one by one.
func TestTakeEachOfOneKey(t *testing.T) {
	clock := int64(7_000_000_000)
	s := clocked(t, connect(t, shared), &clock)
	const calls = 700
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(600, 7, time.Second)),
		policy.Must(policy.Queue(600, 7, time.Second)),
		policy.Must(policy.Bursty(7, time.Second, 600)),
		policy.Must(policy.FixedWindow(600, time.Minute)),
		policy.Must(policy.SlidingWindow(600, time.Minute)),
	} {
		t.Run(p.String(), func(t *testing.T) {
			l := limit(t, s, p)
			asks := make([]store.TakeAsk, calls)
			for i := range asks {
				asks[i] = store.TakeAsk{Limit: l, Key: "k", N: 1}
			}
			var word uint64
			second, refused := 0, 0
			s.TakeEach(t.Context(), asks, func(i int, got store.Taken, err error) {
				require.NoError(t, err)
				require.Equal(t, second, i)
				next, want := p.Take(word, policy.Instant(clock)*1000, 1, 0)
				require.Equal(t, want, got.Decision)
				require.Equal(t, word, got.Before)
				require.Equal(t, next, got.After)
				word = next
				second++
				if !got.Allowed {
					refused++
				}
			})
			require.Equal(t, calls, second)
			require.Positive(t, refused)
			require.Equal(t, word, must.Get(s.Peek(t.Context(), l, "k")).Before)
		})
	}
}
