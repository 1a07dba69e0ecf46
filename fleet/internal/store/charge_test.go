package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/seeds"
	"github.com/ral-limiter/ral/policy"
)

// Keys with any words are charged to the bit like the policy. A foreign value among them stays.
func TestChargingAgreesWithThePolicy(t *testing.T) {
	seed := seeds.Of(t)
	client := connect(t, shared)
	var group sync.WaitGroup
	for i, p := range oraclePolicies(seed) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)+1))
			refunder := p.(policy.Refunder)
			var clock int64
			s := clocked(t, client, &clock)
			l, err := s.Limit(p)
			if !assert.NoError(t, err) {
				return
			}
			const keys = 5
			var words [keys]uint64
			for step := range oracleSteps / 5 {
				clock = nextInstant(random, p, clock, words[0], policy.Decision{})
				now := policy.Instant(clock) * 1000
				debts := make([]store.Debt, keys)
				var next [keys]uint64
				for k := range debts {
					words[k] = anyWord(random, p, refunder, words[k], clock)
					debts[k] = store.Debt{Tail: store.Tail(strconv.Itoa(k)), Units: anyUnits(random, p.Limit(), 1)}
					if k > 0 && random.IntN(2) == 0 {
						debts[k].Units = debts[k-1].Units // the same parameters
						if random.IntN(2) == 0 {
							words[k] = words[k-1] // and the same word
						}
					}
					next[k] = refunder.Refund(words[k], now, -debts[k].Units)
					name, _ := s.Name(l, strconv.Itoa(k))
					put(t, client, name, strconv.FormatUint(words[k], 10))
				}
				at := fmt.Sprintf("%v, seed %d of %d, step %d: words %v at %d, %v", p, seed, i, step, words, now, debts)
				bad := random.IntN(keys)
				name, _ := s.Name(l, strconv.Itoa(bad))
				list := random.IntN(2) == 0
				if ask(t, client, "DEL", name); list {
					integer(t, client, "RPUSH", name, "x")
				} else {
					put(t, client, name, "x")
				}
				errs := s.ChargeEach(context.Background(), l, debts)
				for k, err := range errs {
					name, _ := s.Name(l, strconv.Itoa(k))
					if k == bad {
						switch {
						case !list && (!assert.ErrorIs(t, err, store.ErrForeignValue, at) || !assert.Equal(t, "x", get(t, client, name), at)):
							return
						case list && next[k] > 0 && debts[k].Units > 0 && !assert.ErrorIs(t, err, store.ErrForeignValue, at):
							return
						case list && !assert.EqualValues(t, 1, integer(t, client, "LLEN", name), at):
							return
						case list:
							ask(t, client, "DEL", name)
						}
						continue
					}
					if !assert.NoError(t, err, at) {
						return
					}
					if integer(t, client, "EXISTS", name) == 0 {
						if !assert.LessOrEqual(t, p.FreshAt(next[k]), max(now, 0), at) {
							return
						}
						next[k] = 0
					} else if !assert.Equal(t, strconv.FormatUint(next[k], 10), get(t, client, name), at) {
						return
					}
				}
				words = next
			}
		})
	}
	group.Wait()
}

// One command charges any number of keys, with a second if Redis lacks the script. A log, and a
// hidden cluster, needs one for each key.
func TestChargingIsOneCommand(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	client := redis.Client(t)
	s := store.New(client, store.Options{Name: "n"})
	debts := make([]store.Debt, 64)
	for i := range debts {
		debts[i] = store.Debt{Tail: store.Tail(strconv.Itoa(i)), Units: int64(i%7) + 1}
	}
	commands := func() int64 {
		reply := redis.Do(t, "INFO", "commandstats")
		text, err := reply.ToString()
		require.NoError(t, err)
		scripts := int64(0)
		for _, found := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseInt(found[1], 10, 64)
			require.NoError(t, err)
			scripts += n
		}
		return scripts
	}
	for _, c := range []struct {
		p    policy.Policy
		want int64
	}{
		{policy.Must(policy.Funnel(100, 1, time.Hour)), 1},
		{policy.Must(policy.FixedWindow(100, time.Hour)), 1},
		{policy.Must(policy.SlidingWindow(100, time.Hour)), 1},
		{newLog(t, 100, time.Hour), 64},
	} {
		l := limit(t, s, c.p)
		require.Equal(t, make([]error, len(debts)), s.ChargeEach(t.Context(), l, debts))
		before := commands()
		require.Equal(t, make([]error, len(debts)), s.ChargeEach(t.Context(), l, debts))
		require.Equal(t, c.want, commands()-before, c.p)
		got, err := s.Peek(t.Context(), l, "6")
		require.NoError(t, err)
		require.EqualValues(t, c.p.Limit()-14, got.Remaining, c.p)
	}
	require.Empty(t, s.ChargeEach(t.Context(), limit(t, s, policy.Must(policy.Funnel(1, 1, time.Second))), nil))

	redis.Do(t, "CONFIG", "SET", "maxmemory", "1kb")
	l := limit(t, s, policy.Must(policy.Funnel(100, 1, time.Hour)))
	for _, err := range s.ChargeEach(t.Context(), l, debts) {
		require.ErrorIs(t, err, store.ErrFull)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.ChargeEach(ended, l, debts) {
		require.ErrorIs(t, err, store.ErrAsking)
	}
}
