package store_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func blockName(s *store.Store, l *store.Limit, key string) string {
	name, _ := s.Name(l, key)
	return s.BlockName(l, name)
}

// commands counts Redis's commands of these names, or of all, inside and outside scripts.
func commands(t testing.TB, redis *redistest.Server, names ...string) map[string]int64 {
	t.Helper()
	reply := redis.Do(t, "INFO", "commandstats")
	said := must.Get(reply.ToString())
	all := map[string]int64{}
	for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),`).FindAllStringSubmatch(said, -1) {
		if names == nil || slices.Contains(names, m[1]) {
			all[m[1]] = must.Get(strconv.ParseInt(m[2], 10, 64))
		}
	}
	return all
}

// readBlock returns the word of a key's block in Redis, or 0.
func readBlock(t testing.TB, s *store.Store, l *store.Limit, key string) uint64 {
	t.Helper()
	return must.Get(s.BlockWord(context.Background(), l, key))
}

func TestBlocksLastAsLongAsTheyMeanAnything(t *testing.T) {
	client := connect(t, shared)
	rule := penalty.Rule{Refusals: 3, Within: time.Minute + time.Microsecond, For: time.Hour, Max: 5 * time.Hour, Forget: 20 * time.Hour}
	s := store.New(client, store.Options{Name: own(t), Penalty: rule})
	l := limit(t, s, policy.Must(policy.FixedWindow(1, time.Hour)))
	name := blockName(s, l, "k")
	check := func(what string) {
		t.Helper()
		end := integer(t, client, "PEXPIRETIME", name) - store.DefaultEpoch.UnixMilli()
		fresh := rule.FreshAt(readBlock(t, s, l, "k"))
		assert.GreaterOrEqual(t, policy.Instant(end)*1e6, fresh, what)
		assert.Less(t, policy.Instant(end)*1e6, fresh+1e6+2000, what)
	}
	take := func() store.Taken { return must.Get(s.Take(t.Context(), l, "k", 1, 0)) }
	require.True(t, take().Allowed)
	require.EqualValues(t, 0, integer(t, client, "EXISTS", name), "nothing is kept of a key that was never refused")
	take()
	check("a refusal")
	take()
	check("the next")
	require.True(t, take().Block.Made)
	check("a block by a penalty")
	_, err := s.Block(t.Context(), "k", 7*time.Hour)
	require.NoError(t, err)
	check("a longer one")
	assert.True(t, must.Get(s.Delete(t.Context(), l, "k")))
	require.EqualValues(t, 0, integer(t, client, "EXISTS", name))
	_, err = s.Block(t.Context(), "k", time.Second)
	require.NoError(t, err)
	check("a block")
}

// A block must end before time does. One that would not changes nothing.
func TestBlockAfterTheEndOfTimeIsRefused(t *testing.T) {
	o := store.Options{Name: own(t), Clock: func() int64 { return store.LastBlock - 1000 }}
	redis := storetest.New()
	for _, s := range []interface {
		Block(ctx context.Context, key string, d time.Duration) (store.Standing, error)
	}{store.New(connect(t, shared), o), redis.Store(o)} {
		at := policy.Instant(store.LastBlock-1000) * 1000
		assert.Equal(t, store.Standing{At: at, TooLate: true}, must.Get(s.Block(t.Context(), "k", 1001*time.Microsecond)), "%T", s)
		ms := store.Standing{At: at, Left: time.Millisecond}
		assert.Equal(t, ms, must.Get(s.Block(t.Context(), "k", time.Millisecond)), "%T", s)
		ms.TooLate = true
		assert.Equal(t, ms, must.Get(s.Block(t.Context(), "k", time.Hour)), "%T: it stays blocked", s)
	}
}

// Promise: Unblocked keys cost no more commands.
func TestBlocksCostNoCommand(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := connect(t, server)
	for _, rule := range []penalty.Rule{{}, {Refusals: 3, Within: time.Hour, For: time.Hour, Max: time.Hour, Forget: time.Hour}} {
		s := store.New(client, store.Options{Name: own(t), Penalty: rule})
		l := limit(t, s, policy.Must(policy.FixedWindow(3, time.Hour)))
		take := func(calls ...string) {
			t.Helper()
			var asks []store.TakeAsk
			for _, key := range calls {
				asks = append(asks, store.TakeAsk{Limit: l, Key: key, N: 1})
			}
			s.TakeEach(t.Context(), asks, func(_ int, _ store.Taken, err error) { assert.NoError(t, err) })
		}
		take("first")
		counted := func(do func()) map[string]int64 {
			require.NoError(t, ask(t, client, "CONFIG", "RESETSTAT").Error())
			do()
			return commands(t, server, "evalsha", "eval", "time", "get", "mget", "set", "del")
		}
		assert.Equal(t, map[string]int64{"evalsha": 1, "time": 1, "mget": 1, "set": 1}, counted(func() { take("a") }))
		assert.Equal(t, map[string]int64{"evalsha": 1, "time": 1, "mget": 1, "set": 3}, counted(func() { take("a", "b", "b", "c") }))
		take("a")
		refused := map[string]int64{"evalsha": 1, "time": 1, "mget": 1}
		if rule.Refusals > 0 {
			// A refusal that counts writes the block.
			refused["set"] = 1
		}
		assert.Equal(t, refused, counted(func() { take("a") }))
		_, err := s.Block(t.Context(), "a", time.Hour)
		require.NoError(t, err)
		assert.Equal(t, map[string]int64{"evalsha": 1, "time": 1, "mget": 1}, counted(func() { take("a", "a") }))
	}
}

// A foreign value under a block's name stays, and spoils only its key.
func TestForeignValueUnderTheNameOfABlock(t *testing.T) {
	client := connect(t, shared)
	rule := penalty.Rule{Refusals: 1, Within: time.Hour, For: time.Hour, Max: time.Hour, Forget: time.Hour}
	for _, p := range append(wordPolicies(), newLog(t, 2, time.Hour)) {
		t.Run(p.String(), func(t *testing.T) {
			s := store.New(client, store.Options{Name: own(t), Penalty: rule})
			l := limit(t, s, p)
			for _, value := range []string{"x", "", "1", "16:5", "1:2:3:4", "1:288230376151679", "1:5:1024", "-1:5", "1:99999999999999999999"} {
				name := blockName(s, l, value)
				put(t, client, name, value)
				_, err := s.Take(t.Context(), l, value, 1, 0)
				require.ErrorIs(t, err, store.ErrForeignValue, value)
				require.ErrorContains(t, err, "block")
				_, err = s.TakeAll(t.Context(), []store.Ask{{Limit: l, Key: value, N: 1}})
				require.ErrorIs(t, err, store.ErrForeignValue, value)
				_, err = s.Peek(t.Context(), l, value)
				require.ErrorIs(t, err, store.ErrForeignValue, value)
				_, err = s.Block(t.Context(), value, time.Hour)
				require.ErrorIs(t, err, store.ErrForeignValue, value)
				require.Equal(t, value, get(t, client, name))
			}
			errs := map[string]error{}
			both := []string{"x", "beside"}
			s.TakeEach(t.Context(), []store.TakeAsk{{Limit: l, Key: both[0], N: 1}, {Limit: l, Key: both[1], N: 1}}, func(i int, _ store.Taken, err error) { errs[both[i]] = err })
			assert.ErrorIs(t, errs["x"], store.ErrForeignValue)
			assert.NoError(t, errs["beside"])

			// A value that is no string reads as nothing, and is not written.
			name := blockName(s, l, "list")
			require.NoError(t, ask(t, client, "RPUSH", name, "a").Error())
			// Some of the calls are refused.
			for range 30 {
				_, _ = s.Take(t.Context(), l, "list", 1, 0)
			}
			assert.Equal(t, "list", must.Get(ask(t, client, "TYPE", name).ToString()))
		})
	}
}

// A block is in the same slot as the word, for any limit and tag.
func TestBlockIsInTheSlotOfItsWord(t *testing.T) {
	for _, tag := range []string{"", "t"} {
		s := store.New(connect(t, shared), store.Options{Name: "n", Tag: tag})
		for _, p := range append(wordPolicies(), newLog(t, 2, time.Hour)) {
			l := limit(t, s, p)
			for _, key := range []string{"alice", "", "a}b", strings.Repeat("x", 1000)} {
				name := must.Get(s.Name(l, key))
				block := s.BlockName(l, name)
				assert.NotEqual(t, name, block)
				assert.Equal(t, store.SlotOf(name), store.SlotOf(block))
				if tag == "" && key == "alice" {
					assert.Equal(t, "ral:n:block:{alice}", block)
				}
			}
		}
	}
}

// Two limits of a key both refuse calls. Each call counts once, by the first limit's rule, so that the
// third call blocks the key. A second count would show by the other rule, which blocks at once.
// Promise: A call of several claims on a key counts one refusal for its penalty.
func TestTakeAllCountsAKeyOnce(t *testing.T) {
	client := connect(t, shared)
	options := store.Options{Name: own(t), Penalty: penalty.Rule{Refusals: 3, Within: time.Hour, For: time.Hour, Max: time.Hour, Forget: time.Hour}}
	s := store.New(client, options)
	options.Penalty.Refusals = 1
	strict := store.New(client, options)
	for _, pair := range [][2]policy.Policy{
		{policy.Must(policy.FixedWindow(1, time.Hour)), policy.Must(policy.Funnel(1, 1, time.Hour))},
		{newLog(t, 1, time.Hour), policy.Must(policy.Funnel(1, 1, time.Hour))},
	} {
		key := pair[0].String()
		first, second := limit(t, s, pair[0]), limit(t, strict, pair[1])
		asks := []store.Ask{{Limit: first, Key: key, N: 1}, {Limit: second, Key: key, N: 1}}
		for _, taken := range must.Get(s.TakeAll(t.Context(), asks)) {
			require.True(t, taken.Allowed)
		}
		for refusals := range 3 {
			for _, taken := range must.Get(s.TakeAll(t.Context(), asks)) {
				require.False(t, taken.Allowed)
				require.Equal(t, refusals == 2, taken.Block != store.Block{}, "%d refusals before", refusals)
			}
			kept := get(t, client, blockName(s, first, key))
			require.Equal(t, refusals < 2, strings.HasSuffix(kept, fmt.Sprint(":", refusals+1)), "%s after %d", kept, refusals+1)
		}
		require.True(t, must.Get(s.Take(t.Context(), first, key, 1, 0)).Block.Refused)
	}
}
