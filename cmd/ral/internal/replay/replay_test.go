package replay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func limits(texts ...string) (all []policy.Policy) {
	for _, text := range texts {
		all = append(all, policy.Must(policy.Parse(text)))
	}
	return all
}

func start(t *testing.T, c Config) *Replay {
	t.Helper()
	if c.MaxKeys == 0 {
		c.MaxKeys = 1_000
	}
	if c.Window == 0 {
		c.Window = time.Minute
	}
	if c.Statuses == nil {
		c.Statuses = []int{429}
	}
	return must.Get(New(c))
}

type call struct {
	key  string
	when time.Time
	cost int64
}

// play replays calls whose stamps are exact.
func play(t *testing.T, c Config, calls []call) *Result {
	t.Helper()
	r := start(t, c)
	for _, one := range calls {
		r.Add(&accesslog.Entry{Key: []byte(one.key), Arrival: one.when.UnixNano(), Cost: one.cost})
	}
	return r.Result()
}

// bursts returns calls on a few keys, in bursts and pauses.
func bursts(random *rand.Rand, n int, begin time.Time, step time.Duration, maxCost int64) (calls []call) {
	for range n {
		calls = append(calls, call{fmt.Sprint("key ", random.IntN(5)), begin, 1 + random.Int64N(maxCost)})
		if random.IntN(3) > 0 {
			begin = begin.Add(time.Duration(random.Int64N(int64(step))))
		}
		if random.IntN(40) == 0 {
			begin = begin.Add(20 * step)
		}
	}
	return calls
}

// Promise: `ral replay` refuses each request of a log that an engine with the same limits would have refused.
func TestRefusesAsAnEngineDoes(t *testing.T) {
	for _, texts := range [][]string{
		{"funnel 10, 2/s"}, {"queue 4, 2/s"}, {"bursty 2/s, 9"}, {"warming up 3/s over 4s, cold 3"}, {"window 7/3s"}, {"window 7/3s aligned"},
		{"window 900/day in Europe/Berlin"}, {"sliding 7/3s"}, {"at most 7/3s"}, {"funnel 10, 2/s", "sliding 15/10s", "window 100/m aligned"}, {"queue 4, 2/s", "sliding 15/10s"},
	} {
		t.Run(strings.Join(texts, " and "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := bursts(rand.New(rand.NewPCG(7, 7)), 3_000, time.Now(), time.Second/2, 3)
				e := must.Get(engine.New[string](engine.Config{Policy: limits(texts...)[0]}))
				tiers := must.Get(engine.NewTiered[string](engine.Config{Policy: limits(texts...)[0]}, limits(texts[1:]...)...))
				defer func() { require.NoError(t, errors.Join(e.Close(), tiers.Close())) }()
				want := map[string]uint32{}
				for _, c := range calls {
					time.Sleep(time.Until(c.when))
					if len(texts) == 1 && !e.Take(c.key, c.cost).Allowed || len(texts) > 1 && !tiers.Take(c.key, c.cost).Allowed {
						want[c.key]++
					}
				}
				result := play(t, Config{Limits: limits(texts...), HasCost: true}, calls)
				got := map[string]uint32{}
				for _, k := range result.Top {
					got[k.Key] = k.Refused
				}
				assert.Equal(t, want, got)
				assert.Len(t, want, 5)
				assert.EqualValues(t, 5, result.Scenarios[0].RefusedKeys)
				assert.EqualValues(t, 3_000, result.Requests)
			})
		})
	}
}

// Promise: `ral replay` knows from the durations of a log how many requests were in flight.
func TestRequestsInFlightEnd(t *testing.T) {
	type use struct {
		end, cost int64
	}
	random := rand.New(rand.NewPCG(5, 6))
	replayed := start(t, Config{Limits: limits("in flight 6, 1m at most", "funnel 1M, 1M/s"), HasCost: true})
	inUse := map[string][]use{}
	refused := int64(0)
	for _, c := range bursts(random, 4_000, time.Unix(1e9, 0), time.Second/2, 3) {
		lasts := random.Int64N(6e9)
		replayed.Add(&accesslog.Entry{Key: []byte(c.key), Arrival: c.when.UnixNano(), Duration: time.Duration(lasts), Cost: c.cost})
		uses := slices.DeleteFunc(inUse[c.key], func(u use) bool { return u.end <= c.when.UnixNano() })
		units := c.cost
		for _, u := range uses {
			units += u.cost
		}
		if units > 6 {
			refused++
		} else {
			uses = append(uses, use{c.when.UnixNano() + lasts, c.cost})
		}
		inUse[c.key] = uses
	}
	result := replayed.Result()
	assert.Equal(t, refused, result.Scenarios[0].Refused)
	assert.Greater(t, refused, int64(400))
	assert.Less(t, refused, int64(3_600))
	assert.Equal(t, refused, result.Scenarios[0].Bound[0].Refused)
	assert.Zero(t, result.Scenarios[0].Lost)

	// A request that lasts longer than the limit's time is no longer counted.
	var calls []call
	for i := range int64(100) {
		calls = append(calls, call{"a", time.Unix(1e9+40*i, 0), 1})
	}
	long := start(t, Config{Limits: limits("in flight 1, 30s at most")})
	for _, c := range calls {
		long.Add(&accesslog.Entry{Key: []byte(c.key), Arrival: c.when.UnixNano(), Duration: time.Hour, Cost: 1})
	}
	assert.Zero(t, long.Result().Scenarios[0].Refused)
}

// Promise: In a log of whole seconds the refusals by a funnel lie within the bounds that `ral replay` shows.
func TestWholeSecondsHaveBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	within := 0
	for _, text := range []string{"funnel 20, 3/s", "funnel 20, 90/m", "funnel 1, 1/s", "funnel 2, 5/s", "funnel 5, 5/s", "funnel 9, 50/s", "funnel 3, 7/9s", "funnel 1, 1/h"} {
		for range 30 {
			step := time.Duration(1+random.Int64N(2_000)) * time.Millisecond
			calls := bursts(random, 1_200, time.Unix(1_700_000_000, random.Int64N(1e9)), step, 1)
			exact := play(t, Config{Limits: limits(text)}, calls).Scenarios[0]
			r := start(t, Config{Limits: limits(text)})
			for _, c := range calls {
				r.Add(&accesslog.Entry{Key: []byte(c.key), Arrival: c.when.Unix() * 1e9, IsWhole: true, Cost: 1})
			}
			result := r.Result()
			require.True(t, result.AreWhole)
			require.Len(t, result.Scenarios, 3)
			least, highest := result.Scenarios[1], result.Scenarios[2]
			require.LessOrEqual(t, least.Refused, exact.Refused, text)
			require.LessOrEqual(t, exact.Refused, highest.Refused, text)
			require.LessOrEqual(t, least.RefusedKeys, exact.RefusedKeys, text)
			require.LessOrEqual(t, exact.RefusedKeys, highest.RefusedKeys, text)
			if least.Refused < exact.Refused && exact.Refused < highest.Refused {
				within++
			}
		}
	}
	assert.Greater(t, within, 20, "the bounds were put to the test")
}

func TestWithoutABoundThereAreTwoScenarios(t *testing.T) {
	for _, c := range []Config{{Limits: limits("sliding 5/s")}, {Limits: limits("funnel 5, 5/s", "funnel 5, 5/s")}, {Limits: limits("funnel 5, 5/s"), HasCost: true}} {
		r := start(t, c)
		for i := range int64(20) {
			r.Add(&accesslog.Entry{Key: []byte("a"), Arrival: (1e9 + i/10) * 1e9, IsWhole: true, Cost: 1})
		}
		result := r.Result()
		require.Len(t, result.Scenarios, 2)
		assert.Equal(t, "spread evenly", result.Scenarios[1].Name)
		assert.EqualValues(t, 20, result.Scenarios[1].Requests)
		assert.Less(t, result.Scenarios[1].Refused, result.Scenarios[0].Refused)
	}
}

// Promise: `ral replay` counts the requests that one set of limits refuses and the other admits.
func TestLedgerBetweenTwoSetsOfLimits(t *testing.T) {
	r := start(t, Config{Limits: limits("funnel 3, 1/h", "funnel 100, 1/h"), Against: limits("funnel 5, 1/h")})
	for i := range int64(7) {
		r.Add(&accesslog.Entry{Key: []byte("many"), Arrival: 1e18 + i, Cost: 1, Status: 200})
	}
	r.Add(&accesslog.Entry{Key: []byte("few"), Arrival: 1e18 + 10, Cost: 1, Status: 429})
	result := r.Result()
	assert.Equal(t, Change{2, 1}, result.Newly)
	assert.Equal(t, Change{}, result.Lifted)
	assert.EqualValues(t, 4, result.Scenarios[0].Refused)
	assert.EqualValues(t, 2, result.Scenarios[1].Refused)
	assert.Equal(t, []Bound{{"funnel 3, 1/h", 4}, {"funnel 100, 1/h", 0}}, result.Scenarios[0].Bound)
	assert.Equal(t, []Key{{"many", 7, 4, 0}}, result.Top)
	assert.EqualValues(t, 1, result.WasRefused)
	assert.EqualValues(t, 2, result.Keys)
}

// Promise: `ral replay` tells the log's own refusals from those of the limits.
func TestRefusalsOfTheLogAreToldApart(t *testing.T) {
	r := start(t, Config{Limits: limits("funnel 2, 1/h")})
	for i, status := range []int{200, 429, 429, 200, 503} {
		r.Add(&accesslog.Entry{Key: []byte("a"), Arrival: 1e18 + int64(i), Cost: 1, Status: status})
	}
	result := r.Result()
	assert.EqualValues(t, 2, result.WasRefused)
	assert.EqualValues(t, 1, result.Both)
	assert.Equal(t, Change{2, 1}, result.Newly)
	assert.Equal(t, Change{1, 1}, result.Lifted)
	assert.Equal(t, Chart{First: 1e9, Width: time.Second, Slots: []Slot{{5, 3, 2}}}, result.Chart)
}

func TestRefusedRequestsComeAgainAsTold(t *testing.T) {
	c := Config{Limits: limits("funnel 1, 1/s"), Retries: true}
	calls := slices.Repeat([]call{{"a", time.Unix(1e9, 5), 1}}, 4)
	result := play(t, c, calls)
	require.Len(t, result.Scenarios, 2)
	assert.EqualValues(t, 3, result.Scenarios[0].Refused)
	again := result.Scenarios[1]
	// One of the requests that come again is admitted each second.
	assert.Equal(t, []int64{3, 3 + 2 + 1, 4 + 3 + 2 + 1, 0}, []int64{again.Late, again.Refused, again.Requests, again.GaveUp})

	result = play(t, c, slices.Repeat(calls, 10))
	assert.EqualValues(t, MaxTries, result.Scenarios[1].Late)
	assert.EqualValues(t, 39-MaxTries, result.Scenarios[1].GaveUp)
	assert.EqualValues(t, 1, play(t, c, []call{{"a", time.Unix(1e9, 5), 2}}).Scenarios[1].GaveUp, "it can never pass")
}

// Promise: With more keys than --max-keys, `ral replay` forgets those that owe nothing, and no answer changes.
func TestForgottenKeysChangeNoAnswer(t *testing.T) {
	var calls []call
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 20_000 {
		calls = append(calls, call{fmt.Sprint(random.IntN(2_000)), time.Unix(1e9+int64(i), 1), 1}, call{"steady", time.Unix(1e9+int64(i), 2), 1})
	}
	whole := play(t, Config{Limits: limits("funnel 2, 1/100s"), MaxKeys: 10_000}, calls)
	small := play(t, Config{Limits: limits("funnel 2, 1/100s"), MaxKeys: 500}, calls)
	assert.Equal(t, whole.Scenarios[0].Refused, small.Scenarios[0].Refused)
	assert.Greater(t, whole.Scenarios[0].Refused, int64(19_000))
	assert.Greater(t, small.Forgotten, int64(1_000))
	assert.Greater(t, small.Keys, whole.Keys)
	assert.Equal(t, "steady", small.Top[0].Key)
	assert.Zero(t, small.Unknown)

	full := play(t, Config{Limits: limits("funnel 2, 1/100d"), MaxKeys: 100}, calls)
	assert.Greater(t, full.Unknown, int64(10_000))
	assert.Equal(t, int64(len(calls)), full.Requests+full.Unknown)
}

func TestKeysOfABriefLogAreForgottenToo(t *testing.T) {
	var calls []call
	for i := range sample / 2 {
		calls = append(calls, call{fmt.Sprint("key ", i), time.Unix(1e9+10*int64(i), 1), 1})
	}
	result := play(t, Config{Limits: limits("funnel 2, 1/s"), MaxKeys: 20}, calls)
	assert.EqualValues(t, len(calls), result.Requests)
	assert.Zero(t, result.Unknown)
	assert.Zero(t, result.Late)
	assert.Greater(t, result.Forgotten, int64(len(calls)-30))
	assert.Len(t, result.Scenarios, 1, "the stamps are exact")
}

func TestChartKeepsItsCounts(t *testing.T) {
	var calls []call
	for i := range 10_000 {
		calls = append(calls, call{"a", time.Unix(1e9+int64(i*i/100), 7), 1})
	}
	result := play(t, Config{Limits: limits("funnel 1000, 1/m")}, calls)
	assert.LessOrEqual(t, len(result.Chart.Slots), maxSlots)
	for slots, width := range map[int]time.Duration{maxSlots: 4 * time.Hour, 32: 12 * time.Hour, 20: 24 * time.Hour, 4: 96 * time.Hour} {
		c, sum := result.Chart.Within(slots), Slot{}
		for _, s := range c.Slots {
			sum.add(s)
		}
		assert.Equal(t, Slot{result.Requests, result.Scenarios[0].Refused, 0}, sum)
		assert.Equal(t, width, c.Width)
		begin, end := c.First*int64(width), (c.First+int64(len(c.Slots)))*int64(width)
		assert.True(t, begin <= 1e18 && 1e18 < begin+int64(width) && end > result.To.UnixNano() && end-int64(width) <= result.To.UnixNano())
		assert.LessOrEqual(t, len(c.Slots), slots)
	}
	assert.Empty(t, Chart{}.Within(4).Slots)
	assert.Equal(t, calls[len(calls)-1].when.UTC(), result.To)
}

func TestStrangeTimesAreCounted(t *testing.T) {
	r := start(t, Config{Limits: limits("funnel 10, 1/s"), Window: time.Second})
	for i := range int64(2_000) {
		arrival := 1e18 + i*1e8
		if i == 1_500 {
			arrival = 1e18
		}
		r.Add(&accesslog.Entry{Key: []byte("a"), Arrival: arrival, Cost: 1})
	}
	r.Add(&accesslog.Entry{Key: []byte("a"), Arrival: 2e18, Cost: 1})
	result := r.Result()
	assert.EqualValues(t, 1, result.TooFar)
	assert.EqualValues(t, 1, result.Late)
	assert.EqualValues(t, 2_000, result.Requests)
	assert.Empty(t, start(t, Config{Limits: limits("funnel 10, 1/s")}).Result().Scenarios, "an empty log")
}

func TestSettingsHaveBounds(t *testing.T) {
	for want, c := range map[string]Config{
		"there is no limit":    {MaxKeys: 1, Window: time.Second},
		"there are 9 limits":   {Limits: slices.Repeat(limits("at most 1/s"), 9), MaxKeys: 1, Window: time.Second},
		"--max-keys is 0":      {Limits: limits("at most 1/s"), Window: time.Second},
		"--window is 1ms":      {Limits: limits("at most 1/s"), MaxKeys: 1, Window: time.Millisecond},
		"--window is 25h0m0s,": {Limits: limits("at most 1/s"), MaxKeys: 1, Window: 25 * time.Hour},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}

// Promise: With more keys than --max-keys, `ral suggest` knows what each forgotten key needed.
func TestForgottenKeysKeepTheirNeeds(t *testing.T) {
	var calls []call
	for i := range 2_000 {
		calls = append(calls, slices.Repeat([]call{{fmt.Sprint(i), time.Unix(1e9+int64(i), 1), 1}}, 1+i%7)...)
	}
	gauges := limits("funnel 1M, 1/s", "sliding 5/s")
	whole := play(t, Config{Gauges: gauges, MaxKeys: 10_000}, calls)
	small := play(t, Config{Gauges: gauges, MaxKeys: 500}, calls)
	assert.Greater(t, small.Forgotten, int64(1_500))
	assert.Equal(t, whole.Needs, small.Needs)
	funnel, sliding := whole.Needs[0], whole.Needs[1]
	assert.EqualValues(t, 2_000, funnel.RefusedBy(0, -1))
	assert.Equal(t, []int64{7, 6, 0}, []int64{funnel.Capacity(0, 0), funnel.Capacity(0, 2_000/7), funnel.Capacity(0, 2_000)})
	assert.EqualValues(t, funnel.RefusedBy(0, 5), sliding.RefusedBy(0, Beyond-1))
}

// Promise: Once a log has more keys than --max-keys, `ral replay` and `ral suggest` go on with new keys as soon as known keys owe nothing.
func TestNewKeysRunOnceOthersOweNothing(t *testing.T) {
	for name, c := range map[string]Config{
		"a funnel": {Limits: limits("funnel 2, 1/s")}, "in flight": {Limits: limits("in flight 1, 1m at most")}, "two scenarios": {Limits: limits("sliding 5/s")},
		"again": {Limits: limits("funnel 2, 1/s"), Retries: true}, "a gauge": {Gauges: limits("funnel 2, 1/s")},
	} {
		t.Run(name, func(t *testing.T) {
			c.MaxKeys, c.Window = 20, time.Second
			r := start(t, c)
			second := int64(1e9)
			add := func(key int, requests int) {
				for range requests {
					r.Add(&accesslog.Entry{Key: fmt.Append(nil, key), Arrival: second * 1e9, Duration: 2 * time.Second, Cost: 1, IsWhole: true})
				}
			}
			for key := range 20 {
				add(key, sample/10)
			}
			for key := range 4_000 {
				second++
				add(1_000+key, 1)
			}
			result := r.Result()
			assert.EqualValues(t, 20*sample/10+4_000, result.Requests+result.Unknown)
			assert.Less(t, result.Unknown, int64(300))
			assert.Greater(t, result.Forgotten, int64(3_000))
			assert.Zero(t, result.Late)
		})
	}
}

func TestEndsAndChangesNeedNoRoom(t *testing.T) {
	r := start(t, Config{Limits: limits("in flight 1, 1h at most"), MaxKeys: 1, Window: time.Second})
	add := func(verb accesslog.Verb, key string, grant int64) {
		r.Add(&accesslog.Entry{Verb: verb, Key: []byte(key), Arrival: 1e18 + r.lines*1e6, Cost: 1, Grant: grant})
	}
	for i := range int64(sample) {
		add(accesslog.Take, "k", i+1)
		add(accesslog.End, "0", i+1)
	}
	add(accesslog.ChangeLimit, `"in flight 1, 1h at most -> in flight 2, 1h at most"`, 0)
	for i := range int64(3) {
		add(accesslog.Take, "k", sample+1+i)
	}
	add(accesslog.Take, "other", sample+9)
	for i := range int64(2 * maxChanges) {
		add(accesslog.ChangeLimit, fmt.Sprintf(`"funnel %d, 1/s -> funnel 1, 1/s"`, i+9), 0)
	}
	r.Add(&accesslog.Entry{Verb: accesslog.Lost, Cost: 7})
	r.Add(&accesslog.Entry{Verb: accesslog.Lost, Cost: 1<<63 - 5})
	result := r.Result()
	assert.EqualValues(t, 1, result.Scenarios[0].Refused)
	assert.EqualValues(t, sample+3, result.Requests)
	assert.EqualValues(t, 1, result.Followed)
	assert.EqualValues(t, 1+2*maxChanges, result.LimitChanges)
	assert.EqualValues(t, int64(1<<63-1), result.LostByRecorder)
}

func TestGrantsOfAnEarlierEngineKeepNoKey(t *testing.T) {
	r := start(t, Config{Limits: limits("in flight 9, 1s at most")})
	for i := range int64(3) {
		r.Add(&accesslog.Entry{Verb: accesslog.Take, Key: []byte("k"), Arrival: 1e18 + i, Cost: 1, Grant: 1})
	}
	r.Add(&accesslog.Entry{Verb: accesslog.End, Key: []byte("0"), Arrival: 1e18 + 9, Grant: 1})
	r.Result()
	r.now += 1e10
	r.keys.Max = r.keys.Len()
	_, ok := r.keys.Number([]byte("other"))
	assert.True(t, ok, "the key leaves, since no grant is left")
}

// liveBytes returns the size of what is reachable.
func liveBytes() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Promise: The memory of `ral replay` and `ral suggest` is bounded by --max-keys, however many keys a log has, and each key without room is counted.
func TestMemoryIsBoundedByKeys(t *testing.T) {
	for name, c := range map[string]Config{
		"forgotten": {Limits: limits("funnel 2, 1/s"), Gauges: limits("funnel 100, 1/s")}, "without room": {Limits: limits("funnel 2, 1/d"), Gauges: limits("window 9/d")},
	} {
		t.Run(name, func(t *testing.T) {
			const keys, maxKeys = 150_000, 2_000
			before := liveBytes()
			c.MaxKeys, c.Window = maxKeys, time.Second
			r := start(t, c)
			for i := range int64(keys) {
				r.Add(&accesslog.Entry{Key: fmt.Appendf(nil, "a key of its own %d", i), Arrival: 1e18 + i*1e7 + 1, Cost: 1})
			}
			assert.Less(t, liveBytes()-before, int64(3<<20), "some 30 MB without a bound")
			result := r.Result()
			assert.EqualValues(t, keys, result.Requests+result.Unknown)
			assert.Equal(t, name == "forgotten", result.Forgotten > keys*9/10, "%d", result.Forgotten)
			assert.Equal(t, name == "without room", result.Unknown > keys*9/10, "%d", result.Unknown)
			assert.LessOrEqual(t, result.Keys, result.Forgotten+maxKeys)
			runtime.KeepAlive(r)
		})
	}
}

func TestNeedsAreBounded(t *testing.T) {
	random, n := rand.New(rand.NewPCG(8, 9)), Needs{}
	for range 300_000 {
		n.add(Need{0, random.Uint32N(Beyond)})
	}
	n.add(Need{0, Beyond})
	assert.Less(t, len(n), maxNeeds+256*32)
	assert.EqualValues(t, 1, n.RefusedBy(0, Beyond-1))
	assert.EqualValues(t, 300_001, n.RefusedBy(0, -1))
	assert.InEpsilon(t, 150_000, n.RefusedBy(0, Beyond/2), 0.02)

	exact, few := Needs{}, Needs{}
	for i := range uint32(2 * maxNeeds) {
		exact[Need{0, i}]++
		few.add(Need{0, i})
	}
	for capacity := int64(1); capacity < 2*maxNeeds; capacity += 9_999 {
		less, more := exact.RefusedBy(0, capacity), few.RefusedBy(0, capacity)
		assert.True(t, less <= more && few.RefusedBy(0, capacity+capacity/256+1) <= less, capacity)
	}
}

func TestRequestsOfASecondAreBounded(t *testing.T) {
	r := start(t, Config{Limits: limits("sliding 5/s"), Window: time.Second})
	for range maxHeld + sample {
		r.Add(&accesslog.Entry{Key: []byte("a"), Arrival: 1e18, IsWhole: true, Cost: 1})
	}
	for i := range int64(3) {
		r.Add(&accesslog.Entry{Key: []byte("a"), Arrival: 1e18 + (i+1)*1e9, IsWhole: true, Cost: 1})
	}
	spread := r.Result().Scenarios[1]
	assert.EqualValues(t, SpreadEvenly, spread.Name)
	assert.EqualValues(t, maxHeld+sample+3, spread.Requests+spread.Lost)
	assert.EqualValues(t, sample, spread.Lost)
}

func TestPlansAreBounded(t *testing.T) {
	r := start(t, Config{Gauges: limits("funnel 1M, 1/s")})
	for i := range int64(100) {
		r.Add(&accesslog.Entry{Key: []byte("a"), Plan: fmt.Appendf(nil, "plan %d", i%30), Arrival: 1e18 + i, Cost: 1})
	}
	result := r.Result()
	require.Len(t, result.Plans, maxPlans)
	assert.Equal(t, []string{"plan 0", "plan 15"}, []string{result.Plans[0], result.Plans[maxPlans-1]})
	assert.EqualValues(t, 1, result.Needs[0][Need{0, 4}])
	assert.EqualValues(t, maxPlans, result.Keys)
	assert.EqualValues(t, 100, result.Requests+result.OtherPlans)
}

func TestKeysOfEndedGrantsCanBeForgotten(t *testing.T) {
	r := start(t, Config{Limits: limits("in flight 1, 1s at most", "funnel 2, 2/s"), MaxKeys: 50, Window: time.Second})
	for i := range int64(4_000) {
		key := fmt.Appendf(nil, "key %d", i)
		if i < sample {
			key = []byte("one")
		}
		r.Add(&accesslog.Entry{Verb: accesslog.Take, Grant: i + 1, Key: key, Arrival: 1e18 + i*1e9, Cost: 1})
		r.Add(&accesslog.Entry{Verb: accesslog.End, Grant: i + 1, Key: []byte("0"), Arrival: 1e18 + i*1e9 + 1e8})
	}
	result := r.Result()
	assert.Zero(t, result.Unknown)
	assert.Zero(t, result.Scenarios[0].Refused)
	assert.EqualValues(t, 4_000, result.Requests)
	assert.Greater(t, result.Forgotten, int64(2_000))
}
