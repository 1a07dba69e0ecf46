package store_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// contract makes the same calls of the scripts in Redis and of package storetest, which decides by
// policies, package penalty and a plain log, and expects the same answers and words.
type contract struct {
	*testing.T
	random *rand.Rand
	// clock is the clock of both stores, in microseconds.
	clock  int64
	client rueidis.Client
	real   *store.Store
	fake   *storetest.Store
	redis  *storetest.Redis
	limits []*store.Limit
	rule   penalty.Rule
	// hint is the last decision.
	hint policy.Decision
	// takes are some recent takes, also expired ones.
	takes []earlier
	// newest is the latest instant of a take.
	newest int64
	step   string
}

type earlier struct {
	real, fake store.Taken
	limit      *store.Limit
	key        string
	n          int64
}

const contractKeys = 3

func newContract(t *testing.T, client rueidis.Client, seed uint64, rule penalty.Rule, policies ...policy.Policy) *contract {
	c := &contract{T: t, random: rand.New(rand.NewPCG(seed, 1)), client: client, redis: storetest.New(), rule: rule}
	options := store.Options{Name: own(t), Penalty: rule, Clock: func() int64 { return c.clock }}
	c.real, c.fake = store.New(client, options), c.redis.Store(options)
	for _, p := range policies {
		l := limit(t, c.real, p)
		c.limits = append(c.limits, l)
		// Redis must know the scripts: it makes a call of an unknown script after the others.
		for _, returns := range []bool{false, true} {
			for n := range int64(2) {
				must.Get(c.real.TakeOne(t.Context(), store.TakeAsk{Limit: l, Key: "another", N: n, Returns: returns}))
			}
		}
	}
	_, c.hint = policies[0].Take(0, 1, 0, 0)
	return c
}

// run makes so many calls of any verb.
func (c *contract) run(steps int) {
	for i := range steps {
		l, key := c.limits[c.random.IntN(len(c.limits))], strconv.Itoa(c.random.IntN(contractKeys))
		c.move(l, key)
		n, patience := anyUnits(c.random, l.Policy().Limit(), c.hint.Remaining), anyPatience(c.random, c.hint)
		if c.rule.Refusals > 0 {
			n, patience = min(max(n, -1), 12), min(patience, time.Minute)
		}
		c.step = fmt.Sprintf("%v, step %d at %d: %q, %d units, patience %v", l.Policy(), i, c.clock, key, n, patience)
		switch c.random.IntN(16) {
		case 0:
			c.takeEach()
		case 1, 2:
			c.takeAll()
		case 3:
			c.refund(l, key, n)
		case 4, 5:
			c.keep()
		case 6:
			c.charge(l)
		case 7:
			c.lease(l)
		case 8:
			c.block(l, key)
		case 9:
			c.rewrite(l)
		default:
			c.take(l, key, n, patience)
		}
		for _, l := range c.limits {
			for key := range contractKeys {
				c.sameWord(l, strconv.Itoa(key))
			}
		}
	}
}

// move sets the clock, also back, and perhaps any word of the key and its block.
func (c *contract) move(l *store.Limit, key string) {
	p, word := l.Policy(), c.redis.Word(l, key)
	_, isLog := p.(*slidinglog.Log)
	if c.random.IntN(8) == 0 && !isLog && c.rule.Refusals == 0 {
		word = anyWord(c.random, p, p.(policy.Refunder), word, c.clock)
		name, _ := l.Names(store.Tail(key))
		put(c, c.client, name, strconv.FormatUint(word, 10))
		c.redis.SetWord(l, key, word)
	}
	if c.rule.Refusals > 0 && c.random.IntN(20) == 0 {
		text, at := "", max(c.clock+c.random.Int64N(20_000)-10_000, 0)
		if text = fmt.Sprintf("%d:%d", c.random.IntN(16), min(at, store.LastBlock)); c.random.IntN(2) == 0 {
			text = fmt.Sprintf("%d:%d:%d", c.random.IntN(16), min(at/128*125, store.LastBlock), 1+c.random.Int64N(c.rule.Refusals+3)%1023)
		}
		_, name := l.Names(store.Tail(key))
		put(c, c.client, name, text)
		c.redis.SetBlock(l, key, readBlock(c, c.real, l, key))
	}
	if c.rule.Refusals == 0 {
		c.clock = nextInstant(c.random, p, c.clock, word, c.hint)
	} else if c.random.IntN(3) == 0 {
		c.clock += c.random.Int64N(2_000_000)
	}
	// The clock goes to an end of the block.
	if block := readBlock(c, c.real, l, key); block != 0 && c.random.IntN(3) == 0 {
		if fresh := c.rule.FreshAt(block); fresh > 0 {
			c.clock = max(int64(fresh-policy.Instant(c.random.IntN(2))*policy.Instant(c.rule.Forget))/1000+c.random.Int64N(5)-3, 0)
		}
	}
	if isLog || c.rule.Refusals > 0 {
		c.clock = min(c.clock, store.LastBlock/2)
	}
}

// same expects the same results. Logs number their units by other means.
func (c *contract) same(l *store.Limit, want store.Taken, wantErr error, got store.Taken, err error) {
	c.Helper()
	require.Equal(c, wantErr == nil, err == nil, "%s: %v and %v", c.step, wantErr, err)
	if _, isLog := l.Policy().(*slidinglog.Log); isLog {
		got.Before, got.After, want.Before, want.After = 0, 0, 0, 0
	}
	require.Equal(c, want, got, c.step)
	c.hint = got.Decision
}

// sameWord expects the same word. A word that means nothing may be kept or not.
func (c *contract) sameWord(l *store.Limit, key string) {
	if _, isLog := l.Policy().(*slidinglog.Log); isLog {
		return
	}
	name, _ := l.Names(store.Tail(key))
	word := uint64(0)
	text, err := ask(c, c.client, "GET", name).ToString()
	if !rueidis.IsRedisNil(err) {
		require.NoError(c, err)
		word, err = strconv.ParseUint(text, 10, 64)
		require.NoError(c, err)
	}
	if want := c.redis.Word(l, key); word != want {
		fresh := l.Policy().FreshAt(max(word, want))
		require.LessOrEqual(c, fresh, max(policy.Instant(c.clock)*1000, 0), "%s: the word of %v is %d, want %d", c.step, l.Policy(), word, want)
		c.redis.SetWord(l, key, word)
	}
}

func (c *contract) take(l *store.Limit, key string, n int64, patience time.Duration) {
	ask := store.TakeAsk{Limit: l, Key: key, N: n, Patience: patience, Returns: c.random.IntN(3) > 0}
	want, wantErr := c.fake.TakeOne(c.Context(), ask)
	got, err := c.real.TakeOne(c.Context(), ask)
	c.same(l, want, wantErr, got, err)
	if got.Allowed && n > 0 {
		c.took(l, key)
		c.takes = append(c.takes, earlier{got, want, l, key, n})
	}
}

// took forgets a log's earlier takes if a further take may have their numbers.
func (c *contract) took(l *store.Limit, key string) {
	if c.clock <= c.newest {
		c.forgetTakes(l, key)
	}
	c.newest = max(c.newest, c.clock)
}

// forgetTakes has a log's earlier takes not be kept in part: a return without a take removes other
// units than the plain log does: see TestKeepOfALog.
func (c *contract) forgetTakes(l *store.Limit, key string) {
	if _, isLog := l.Policy().(*slidinglog.Log); isLog {
		c.takes = slices.DeleteFunc(c.takes, func(e earlier) bool { return e.limit == l && e.key == key })
	}
}

func (c *contract) takeEach() {
	asks := make([]store.TakeAsk, 1+c.random.IntN(6))
	for i := range asks {
		l := c.limits[c.random.IntN(len(c.limits))]
		asks[i] = store.TakeAsk{Limit: l, Key: strconv.Itoa(c.random.IntN(contractKeys)), N: anyUnits(c.random, l.Policy().Limit(), 1), Returns: c.random.IntN(3) > 0}
		if c.random.IntN(2) == 0 || c.rule.Refusals > 0 {
			// The ask may share a script with other asks.
			asks[i].N = 1 + c.random.Int64N(2)
		}
	}
	// Calls for equal units of a limit are decided together, the groups in the order of their firsts.
	type group struct {
		limit *store.Limit
		n     int64
		notes bool
	}
	groupOf := func(a store.TakeAsk) group {
		s, ok := a.Limit.Policy().(shape.Shaped)
		paced := ok && (s.Shape().Kind == shape.Funnel || s.Shape().Kind == shape.Bursty)
		return group{a.Limit, a.N, paced && a.Returns}
	}
	var order []store.TakeAsk
	var indexes []int
	seen := map[group]bool{}
	for i, a := range asks {
		_, isLog := a.Limit.Policy().(*slidinglog.Log)
		alone := isLog || a.N < 1 || a.N > a.Limit.Policy().Limit()
		if !alone && seen[groupOf(a)] {
			continue
		}
		seen[groupOf(a)] = true
		for j, b := range asks[i:] {
			if j == 0 || !alone && groupOf(b) == groupOf(a) {
				order, indexes = append(order, b), append(indexes, i+j)
			}
		}
	}
	wants, gots, errs := make([]store.Taken, len(asks)), make([]store.Taken, len(asks)), make([]error, len(asks))
	c.fake.TakeEach(c.Context(), order, func(i int, t store.Taken, err error) { wants[indexes[i]], errs[indexes[i]] = t, err })
	replies := 0
	c.real.TakeEach(c.Context(), asks, func(i int, t store.Taken, err error) {
		replies++
		gots[i] = t
		require.Equal(c, errs[i], err, c.step)
	})
	require.Equal(c, len(asks), replies)
	for i, a := range asks {
		c.same(a.Limit, wants[i], nil, gots[i], nil)
		c.took(a.Limit, a.Key)
	}
}

func (c *contract) takeAll() {
	asks := make([]store.Ask, 1+c.random.IntN(4))
	for i := range asks {
		l := c.limits[c.random.IntN(len(c.limits))]
		asks[i] = store.Ask{Limit: l, Key: strconv.Itoa(c.random.IntN(contractKeys)), N: []int64{1, 1, 1, 2, 3, 5, 7, 0, 0, 0, -1, l.Policy().Limit() + 1, math.MaxInt64}[c.random.IntN(13)], Returns: c.random.IntN(3) > 0}
	}
	want, wantErr := c.fake.TakeAll(c.Context(), asks)
	got, err := c.real.TakeAll(c.Context(), asks)
	require.Equal(c, wantErr, err, c.step)
	require.Len(c, got, len(asks))
	for i, a := range asks {
		c.step += fmt.Sprintf("; all %d: %v %q %d", i, a.Limit.Policy(), a.Key, a.N)
		c.same(a.Limit, want[i], nil, got[i], nil)
		c.took(a.Limit, a.Key)
	}
}

func (c *contract) refund(l *store.Limit, key string, n int64) {
	if c.random.IntN(2) == 0 && n > math.MinInt64 {
		n = -n
	}
	c.forgetTakes(l, key)
	want, wantErr := c.fake.Refund(c.Context(), l, key, n)
	got, err := c.real.Refund(c.Context(), l, key, n)
	c.same(l, want, wantErr, got, err)
}

func (c *contract) keep() {
	if len(c.takes) == 0 {
		return
	}
	at := len(c.takes) - 1 - c.random.IntN(min(len(c.takes), 5))
	take := c.takes[at]
	c.takes = append(c.takes[:at], c.takes[at+1:]...)
	p := take.limit.Policy()
	// The take may have left any word.
	if _, isLog := p.(*slidinglog.Log); !isLog && c.random.IntN(8) == 0 {
		take.real.After = anyWord(c.random, p, p.(policy.Refunder), c.redis.Word(take.limit, take.key), c.clock) | 1
		take.fake.After = take.real.After
	}
	kept := c.random.Int64N(2*take.n+1) - take.n
	c.step += fmt.Sprintf(", kept %d of %+v", kept, take)
	want, wantErr := c.fake.Keep(c.Context(), take.limit, take.key, take.fake, take.n, kept)
	got, err := c.real.Keep(c.Context(), take.limit, take.key, take.real, take.n, kept)
	c.same(take.limit, want, wantErr, got, err)
}

func (c *contract) charge(l *store.Limit) {
	debts := make([]store.Debt, contractKeys)
	for i := range debts {
		c.forgetTakes(l, strconv.Itoa(i))
		debts[i] = store.Debt{Tail: store.Tail(strconv.Itoa(i)), Units: anyUnits(c.random, l.Policy().Limit(), 1)}
		if i > 0 && c.random.IntN(2) == 0 {
			// Equal debts have the same parameters.
			debts[i].Units = debts[i-1].Units
		}
		if c.rule.Refusals > 0 {
			debts[i].Units = min(max(debts[i].Units, -1), 12)
		}
	}
	c.step += fmt.Sprint(", ", debts)
	inFake := slices.Clone(debts)
	require.Equal(c, c.fake.ChargeEach(c.Context(), l, inFake), c.real.ChargeEach(c.Context(), l, debts), c.step)
	require.Equal(c, inFake, debts, c.step)
}

func (c *contract) lease(l *store.Limit) {
	s, ok := l.Policy().(shape.Shaped)
	if !ok || c.rule.Refusals > 0 || s.Shape().Kind == shape.Queue || s.Shape().Kind == shape.Bursty || s.Shape().Kind == shape.AlignedWindow {
		return
	}
	var asks []store.LeaseAsk
	for i := range contractKeys {
		most := 1 + c.random.Int64N(min(l.Policy().Limit(), 1<<22))
		asks = append(asks, store.LeaseAsk{Limit: l, Key: strconv.Itoa(i), Need: 1 + c.random.Int64N(most), Most: most})
	}
	c.clock = min(c.clock, 1<<48)
	want := c.fake.Lease(c.Context(), asks)
	for i, got := range c.real.Lease(c.Context(), asks) {
		c.step += fmt.Sprintf(", lease %+v", asks[i])
		require.Equal(c, want[i].Granted, got.Granted, c.step)
		c.same(l, want[i].Taken, want[i].Err, got.Taken, got.Err)
		c.took(l, asks[i].Key)
	}
}

func (c *contract) rewrite(l *store.Limit) {
	refunder, words := l.Policy().(policy.Refunder)
	if _, isLog := l.Policy().(*slidinglog.Log); isLog || !words {
		return
	}
	var all []store.Rewrite
	for i := range contractKeys {
		n := c.random.Int64N(10)
		all = append(all, store.Rewrite{Tail: store.Tail(strconv.Itoa(i)), Next: func(word uint64, now policy.Instant) uint64 {
			return refunder.Refund(word, now, n)
		}})
	}
	require.Equal(c, c.fake.RewriteAll(c.Context(), l, all, 0), c.real.RewriteAll(c.Context(), l, all, 0), c.step)
}

func (c *contract) block(l *store.Limit, key string) {
	d := time.Duration(c.random.Int64N(10_000)) * time.Microsecond
	want, wantErr := c.fake.Block(c.Context(), key, d)
	got, err := c.real.Block(c.Context(), key, d)
	require.Equal(c, []any{want, wantErr}, []any{got, err}, c.step)
	if c.random.IntN(4) == 0 {
		c.sameWord(l, key)
		// The word may be written as 0.
		if name, _ := l.Names(store.Tail(key)); c.redis.Word(l, key) == 0 {
			require.NoError(c, ask(c, c.client, "DEL", name).Error())
		}
		want, wantErr := c.fake.Delete(c.Context(), l, key)
		got, err := c.real.Delete(c.Context(), l, key)
		require.Equal(c, wantErr, err)
		require.Equal(c, want, got, c.step)
	}
}

func anyRule(random *rand.Rand) penalty.Rule {
	rule := penalty.Rule{Refusals: 1 + random.Int64N(5), Within: time.Duration(1+random.Int64N(5000)) * time.Microsecond, For: time.Duration(1+random.Int64N(5000)) * time.Microsecond}
	switch random.IntN(4) {
	case 0:
		return penalty.Rule{Refusals: penalty.MostRefusals, Within: penalty.Longest, For: penalty.Longest, Max: penalty.Longest, Forget: penalty.Longest}
	case 1:
		rule.Max = rule.For << penalty.MostDoublings
	default:
		rule.Max = rule.For * time.Duration(1+random.Int64N(20))
	}
	rule.FillIn()
	rule.Forget = min(rule.Forget+time.Duration(random.Int64N(20_000))*time.Microsecond, penalty.Longest)
	return rule
}

// The scripts decide as the policies in process, to the bit, from any word and at any instant: takes,
// alone and together, returns, charges, leases, blocks and penalties.
// Promise: Redis decides as the policy in process, to the nanosecond.
func TestAgreesWithThePolicy(t *testing.T) {
	seed := testenv.Seed(t)
	client := connect(t, shared)
	random := rand.New(rand.NewPCG(seed, 0))
	for i, p := range oraclePolicies(seed) {
		t.Run(p.String(), func(t *testing.T) {
			newContract(t, client, seed+uint64(i), penalty.Rule{}, p).run(oracleSteps)
		})
	}
	// Words stay away from the end of time, where the scripts count a refusal and a penalty.Rule does not.
	for i, p := range slices.Repeat(wordPolicies(), 4) {
		t.Run(fmt.Sprint("penalty ", i, " ", p), func(t *testing.T) {
			newContract(t, client, seed+uint64(i), anyRule(random), p).run(oracleSteps)
		})
	}
}

// Redis agrees with a plain log call by call: with patience, a clock that goes back, refunds, charges
// and partial returns.
// Promise: A `SlidingLog` is an exact log.
func TestLogIsALog(t *testing.T) {
	seed := testenv.Seed(t)
	client := connect(t, shared)
	random := rand.New(rand.NewPCG(seed, 0))
	for i, c := range []struct {
		limit int64
		per   time.Duration
	}{
		{1, time.Millisecond}, {3, time.Second}, {10, time.Second}, {10, time.Second}, {7, 1_234_000},
		{50, time.Minute}, {5, 366 * 24 * time.Hour}, {200, time.Second}, {2, 3 * time.Millisecond},
		{slidinglog.Most, time.Second}, {3000, time.Minute}, {25, time.Second}, {120, 10 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rule := penalty.Rule{}
			if i%3 == 2 {
				rule = anyRule(random)
			}
			newContract(t, client, seed+uint64(i), rule, newLog(t, c.limit, c.per)).run(2 * oracleSteps)
		})
	}
}

// Calls on keys of limits of all kinds at once, also twice on a key, take all or nothing.
func TestTakeAllTakesAllOrNothing(t *testing.T) {
	seed := testenv.Seed(t)
	client := connect(t, shared)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range uint64(8) {
		limits := append(wordPolicies(), newLog(t, 6, time.Second), policy.Must(policy.Funnel(3, 5, time.Second)), newLog(t, 4, time.Second))
		c := newContract(t, client, seed+i, anyRule(random), limits...)
		for range oracleSteps {
			c.clock += c.random.Int64N(400_000)
			c.step = fmt.Sprint("at ", c.clock)
			c.takeAll()
		}
	}
}

// Servers of several epochs beat, leave, and are away for long. The script counts and remembers
// them, and their limits, as package storetest does.
func TestRollIsTheFakes(t *testing.T) {
	seed := testenv.Seed(t)
	client := connect(t, shared)
	epochs := []time.Time{store.DefaultEpoch, store.DefaultEpoch.AddDate(-1, 0, 0), store.DefaultEpoch.Add(time.Hour)}
	for run := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, run))
		now, o, redis := store.DefaultEpoch.Add(100*24*time.Hour), store.Options{Name: own(t)}, storetest.New()
		for step := range oracleSteps {
			id := random.IntN(6)
			o.Epoch = epochs[id%len(epochs)]
			o.Clock = func() int64 { return now.Sub(o.Epoch).Microseconds() }
			real, fake := store.New(client, o), redis.Store(o)
			switch random.IntN(16) {
			case 0:
				require.Equal(t, fake.Leave(t.Context(), fmt.Sprint(id)), real.Leave(t.Context(), fmt.Sprint(id)))
			// An outage lasts longer than a server is remembered, or less.
			case 1:
				now = now.Add(time.Duration(random.Int64N(int64(2 * rollKeep))).Truncate(time.Microsecond))
			// Some servers are gone at that instant.
			case 2:
				now = now.Add(rollTTL - time.Duration(random.IntN(3))*time.Microsecond)
			default:
				now = now.Add(time.Duration(random.Int64N(int64(time.Second))).Truncate(time.Microsecond))
			}
			beat := store.Beat{ID: fmt.Sprint(id), TTL: rollTTL, Keep: rollKeep, Limit: "limit, 1+ " + strconv.Itoa(random.IntN(3))}
			want := must.Get(fake.Heartbeat(t.Context(), beat))
			got := must.Get(real.Heartbeat(t.Context(), beat))
			slices.SortFunc(got.Limits, func(a, b store.KeptLimit) int { return strings.Compare(a.Text, b.Text) })
			require.Equal(t, want, got, "seed %d, run %d, step %d", seed, run, step)
		}
		for _, name := range []string{"ral:%s:servers", "ral:%[1]s:limits{ral:%[1]s:servers}"} {
			require.InDelta(t, 24*time.Hour.Milliseconds(), integer(t, client, "PTTL", fmt.Sprintf(name, o.Name)), float64(2*time.Hour.Milliseconds()))
		}
	}
}
