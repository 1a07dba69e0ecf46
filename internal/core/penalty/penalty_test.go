package penalty

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// key is the slow model of a key, with all its history.
type key struct {
	rule Rule
	// until is the instant at which the last block ends or ended.
	until policy.Instant
	// blocks is the number of blocks in a row.
	blocks int
	// opened is the instant at which the window opened, rounded up, or -1 if there is none.
	opened policy.Instant
	// refused is the number of refusals in the window.
	refused int64
}

func (k *key) settle(now policy.Instant) {
	if k.until > now {
		return
	}
	last := k.until
	if k.opened >= 0 {
		last = k.opened
		if now >= k.opened+policy.Instant(k.rule.Within) {
			k.refused = 0
		}
	}
	if now >= last+policy.Instant(k.rule.Forget) {
		k.blocks = 0
	}
}

// refuse counts a refusal and returns for how long the key is blocked then.
func (k *key) refuse(now policy.Instant) time.Duration {
	if k.settle(now); k.until > now {
		return time.Duration(k.until - now)
	}
	if k.refused == 0 {
		for k.opened = now; k.opened%Step != 0; {
			k.opened++
		}
	}
	if k.refused++; k.refused < k.rule.Refusals {
		return 0
	}
	length := k.rule.For
	for range min(k.blocks, MostDoublings) {
		length = min(2*length, k.rule.Max)
	}
	k.blocks++
	k.refused, k.opened, k.until = 0, -1, now+policy.Instant(length)
	return length
}

func (k *key) block(now policy.Instant, d time.Duration) {
	k.settle(now)
	k.until = max(k.until, now+policy.Instant(d))
	k.refused, k.opened = 0, -1
}

func randomRule(r *rand.Rand) Rule {
	rule := Rule{Refusals: 1 + r.Int64N(6), Within: time.Duration(1 + r.Int64N(int64(5*time.Millisecond)))}
	if r.IntN(10) == 0 {
		rule.Refusals = MostRefusals
	}
	rule.For = time.Duration(1 + r.Int64N(int64(5*time.Millisecond)))
	rule.Max = time.Duration(int64(rule.For) + r.Int64N(40*int64(rule.For)))
	rule.Forget = rule.Within + time.Duration(r.Int64N(int64(50*time.Millisecond)))
	return rule
}

// A word agrees with the history to the nanosecond: the block, the refusals left, the next
// block's length. A key is fresh later than Firm from now exactly while blocked. Once it is
// fresh, its history does not matter.
func TestRuleAgreesWithTheHistory(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 5))
		rule := randomRule(r)
		model, word, now := key{rule: rule, opened: -1}, uint64(0), policy.Instant(1+r.Int64N(1e15))
		// The last block ended long ago.
		model.until = -policy.Instant(rule.Forget)
		for range 200 {
			switch r.IntN(6) {
			case 0:
				now += policy.Instant(r.Int64N(int64(rule.Within) + 2*Step))
			case 1:
				now += policy.Instant(r.Int64N(int64(rule.Forget) + 2*Step))
			case 2:
				if model.until > now {
					// The instant is the last nanosecond of a block, or the next.
					now = model.until - policy.Instant(r.Int64N(2))
				}
			case 3:
				if model.opened >= 0 {
					now = max(now, model.opened+policy.Instant(rule.Within)-policy.Instant(r.Int64N(2)))
				}
			}
			if r.IntN(8) == 0 {
				d := time.Duration(1 + r.Int64N(int64(10*time.Millisecond)))
				model.block(now, d)
				next, decision := Lock{&rule, d}.Take(word, now, 1, 0)
				require.True(t, decision.Allowed)
				word = next
			} else {
				model.settle(now)
				was := model.until > now
				left := model.refuse(now)
				next, decision := rule.Take(word, now, 1, 0)
				require.Equal(t, !was, decision.Allowed, "seed %d", seed)
				if was {
					require.Equal(t, left, decision.RetryAfter, "seed %d", seed)
					require.Equal(t, word, next, "a refusal during a block counts for nothing")
				} else {
					require.Equal(t, left, decision.ResetAfter, "seed %d", seed)
					require.Equal(t, rule.Refusals-model.refused, decision.Remaining+map[bool]int64{true: rule.Refusals}[left > 0], "seed %d", seed)
				}
				word = next
			}
			require.LessOrEqual(t, word, uint64(policy.MaxWord))
			require.Equal(t, model.until > now, rule.FreshAt(word) > now+policy.Instant(rule.Firm()), "seed %d", seed)
			if fresh := rule.FreshAt(word); r.IntN(4) == 0 {
				at := max(now, fresh)
				mine, d := rule.Take(word, at, 1, 0)
				other, e := rule.Take(0, at, 1, 0)
				require.Equal(t, e, d, "seed %d", seed)
				require.Equal(t, other, mine, "seed %d", seed)
			}
		}
	}
}

// A key can have 2k-2 refusals within Within, and is blocked by another.
func TestMostRefusalsWithoutABlock(t *testing.T) {
	const k = 5
	rule := Rule{Refusals: k, Within: 1000 * Step, For: 1e6 * Step, Max: 1e6 * Step, Forget: 1e6 * Step}
	// The first refusal opens a window, which has 3 refusals at its end, and the next has 4 at its start.
	refusals := []policy.Instant{Step}
	for range k - 2 {
		refusals = append(refusals, 1000*Step+1)
	}
	for range k - 1 {
		refusals = append(refusals, 1001*Step)
	}
	word := uint64(0)
	for _, at := range refusals {
		var d policy.Decision
		word, d = rule.Take(word, at, 1, 0)
		assert.NotZero(t, d.Remaining)
	}
	_, d := rule.Take(word, 1001*Step, 1, 0)
	assert.Zero(t, d.Remaining)
}

func TestBlocksDouble(t *testing.T) {
	rule := Rule{Refusals: 1, Within: time.Second, For: time.Second, Max: 20 * time.Hour, Forget: 24 * time.Hour}
	word, now := uint64(0), policy.Instant(1)
	for i := range 40 {
		var d policy.Decision
		word, d = rule.Take(word, now, 1, 0)
		want := time.Duration(min(math.Pow(2, float64(min(i, MostDoublings))), 32768)) * time.Second
		require.Equal(t, min(want, 20*time.Hour), d.ResetAfter)
		now += policy.Instant(d.ResetAfter)
		_, d = rule.Take(word, now-1, 1, 0)
		require.Equal(t, policy.Decision{Limit: 1, RetryAfter: 1, ResetAfter: 1}, d)
		if i < 39 {
			now += policy.Instant(24*time.Hour) - 1
		}
	}
	_, d := rule.Take(word, now+policy.Instant(24*time.Hour)-1, 1, 0)
	assert.Equal(t, 32768*time.Second, d.ResetAfter, "32768 s is 9.1 h, and less than Max")
	_, d = rule.Take(word, now+policy.Instant(24*time.Hour), 1, 0)
	assert.Equal(t, time.Second, d.ResetAfter)
}

func FuzzAnyWord(f *testing.F) {
	f.Add(uint64(0), int64(0), int64(1), int64(1))
	f.Add(uint64(policy.MaxWord), int64(math.MaxInt64), int64(-1), int64(Longest))
	f.Add(uint64(kindBit), int64(-5), int64(math.MaxInt64), int64(Longest))
	f.Fuzz(func(t *testing.T, word uint64, instant, n, d int64) {
		word %= policy.MaxWord + 1
		d = max(min(d, int64(Longest)), 1)
		for _, rule := range []*Rule{{}, {Refusals: 3, Within: 5, For: time.Duration(d), Max: Longest, Forget: Longest}, {Refusals: MostRefusals, Within: Longest, For: 1, Max: 1, Forget: Longest}} {
			for _, p := range []policy.Policy{rule, Lock{rule, time.Duration(d)}} {
				next, decision := p.Take(word, policy.Instant(instant), n, 0)
				assert.LessOrEqual(t, next, uint64(policy.MaxWord))
				assert.GreaterOrEqual(t, p.FreshAt(word), policy.Instant(0))
				assert.True(t, decision.Allowed == (decision.RetryAfter == 0), "%+v", decision)
				assert.True(t, decision.Allowed || next == word)
			}
		}
	})
}

// At the end of time no key is blocked, and none can be.
func TestNoKeyIsBlockedAtTheEndOfTime(t *testing.T) {
	rule := Rule{Refusals: 1, Within: 1, For: time.Hour, Max: time.Hour, Forget: time.Hour}
	word, d := rule.Take(0, end-5, 1, 0)
	assert.Equal(t, time.Duration(5), d.ResetAfter)
	_, d = rule.Take(word, end, 1, 0)
	assert.True(t, d.Allowed)
	_, d = Lock{&rule, 6}.Take(0, end-5, 1, 0)
	assert.Equal(t, policy.Never, d.RetryAfter)
	_, d = Lock{&rule, 5}.Take(0, end-5, 1, 0)
	assert.True(t, d.Allowed)
}

func TestRulesAreChecked(t *testing.T) {
	for name, changes := range map[string][]func(r *Rule){
		"Penalty.Refusals": {func(r *Rule) { r.Refusals = 0 }, func(r *Rule) { r.Refusals = MostRefusals + 1 }, func(r *Rule) { *r = Rule{For: 1} }},
		"Penalty.Within":   {func(r *Rule) { r.Within = 0 }, func(r *Rule) { r.Within = -1 }, func(r *Rule) { r.Within = Longest + 1 }},
		"Penalty.For":      {func(r *Rule) { r.For = 0 }, func(r *Rule) { r.For = Longest + 1 }},
		"Penalty.Max": {
			func(r *Rule) { r.Max = time.Second }, func(r *Rule) { r.Max = -1 }, func(r *Rule) { r.Max = Longest + 1 },
			func(r *Rule) { r.For, r.Max = time.Second, 1<<MostDoublings*time.Second+1 },
		},
		"Penalty.Forget": {func(r *Rule) { r.Forget = time.Second }, func(r *Rule) { r.Forget = Longest + 1 }},
		"": {
			func(*Rule) {}, func(r *Rule) { r.Refusals = MostRefusals }, func(r *Rule) { r.Within = Longest },
			func(r *Rule) { r.For, r.Max = time.Second, 1<<MostDoublings*time.Second }, func(r *Rule) { r.For = Longest },
		},
	} {
		for i, change := range changes {
			r := Rule{Refusals: 3, Within: time.Minute, For: time.Minute}
			change(&r)
			r.FillIn()
			err := r.Check("Config")
			var bad *policy.FieldError
			if name == "" {
				assert.NoError(t, err, "%d", i)
			} else if assert.ErrorAs(t, err, &bad, "%s %d", name, i) {
				assert.Equal(t, []string{"Config", name}, []string{bad.Of, bad.Field})
			}
		}
	}
}

func TestRulesAreOneFamily(t *testing.T) {
	a, b := &Rule{}, &Rule{Refusals: 7, Within: 1, For: 1, Max: 1, Forget: 1}
	funnel := policy.Must(policy.Funnel(1, 1, time.Second))
	for _, other := range []policy.Policy{a, b, Lock{b, 3}} {
		assert.True(t, a.Reads(other))
		next, ok := a.Carry(other, 77, 5)
		assert.True(t, ok)
		assert.EqualValues(t, 77, next)
		assert.Equal(t, Text, other.String())
	}
	assert.False(t, a.Reads(funnel))
	assert.False(t, funnel.(policy.Relative).Reads(a))
}

// Words are in files, so their meaning must not change, unless Text gets another number.
func TestWordsStayAsTheyAre(t *testing.T) {
	assert.Equal(t, "blocked keys 1", Text)
	for word, want := range map[uint64]state{
		0:                        {},
		77:                       {until: 77},
		3<<58 | 1_000_000:        {until: 1_000_000, level: 3},
		1<<62 | 5<<48 | 9:        {count: 5, opened: 9 * 1024},
		1<<62 | 15<<58 | 1<<48:   {count: 1, level: 15},
		15<<58 | uint64(1<<58-1): {until: 1<<58 - 1, level: 15},
	} {
		assert.Equal(t, want, read(word))
		assert.Equal(t, word, want.word())
		if want.count > 0 {
			assert.Equal(t, word, CountWord(want.level, want.count, int64(want.opened/Step)))
		} else if want.until <= end {
			assert.Equal(t, word, BlockWord(want.level, want.until))
		}
	}
}
