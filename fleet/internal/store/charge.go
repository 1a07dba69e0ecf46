package store

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Debt is a number of units to charge to the key with that [Tail].
type Debt struct {
	Tail  string
	Units int64
	// Excess is set by ChargeEach. It is the number of Units that are above the key's limit after the charge.
	Excess int64
}

// ChargeEach charges each debt like a negative Refund, in a round trip. It returns an error or nil for
// each debt. One script charges all debts. In a cluster, and for a limit without words, each debt has a
// script of its own. A script blocks Redis for some microseconds a debt, so callers must bound the
// number of debts.
func (s *Store) ChargeEach(ctx context.Context, limit *Limit, debts []Debt) []error {
	if s.apart.Load() || limit.wordless() || s.client.Mode() == rueidis.ClientModeCluster {
		return s.chargeApart(ctx, limit, debts)
	}
	if len(debts) == 0 {
		return nil
	}
	errs := make([]error, len(debts))
	all := call{script: limit.charge}
	for i, debt := range debts {
		// An empty argument stands for the figures of the previous debt.
		figures := ""
		if i == 0 || debt.Units != debts[i-1].Units {
			figures = packed(limit.backFigures(-debt.Units, take{}))
		}
		all.keys, all.args = append(all.keys, limit.prefix+debt.Tail), append(all.args, figures)
	}
	res := s.run(ctx, []call{all})[0]
	if err := res.Error(); err != nil && len(debts) > 1 && errors.Is(classify(err, ""), ErrCrossSlot) {
		// A proxy hides a cluster. Nothing was done.
		s.apart.Store(true)
		return s.chargeApart(ctx, limit, debts)
	}
	answer := read(res, all.keys[0], 1+2*len(debts))
	us := answer.number()
	for i, name := range all.keys {
		before, after := answer.next(), answer.next()
		if errs[i] = answer.err; answer.err == nil {
			errs[i] = limit.understandCharge(instant(us), before, after, name, &debts[i])
		}
	}
	return errs
}

// chargeApart charges each debt by a script of its own.
func (s *Store) chargeApart(ctx context.Context, limit *Limit, debts []Debt) []error {
	errs, calls := make([]error, len(debts)), make([]call, len(debts))
	for i, debt := range debts {
		calls[i] = call{script: limit.back, keys: limit.backNames(limit.prefix + debt.Tail), args: []string{packed(limit.backFigures(-debt.Units, take{}))}}
	}
	for i, res := range s.run(ctx, calls) {
		debt := &debts[i]
		if limit.log != nil {
			answer := read(res, calls[i].keys[0], 3, 6, 7)
			debt.Excess, errs[i] = min(max(limit.readSet(answer).used-limit.limit, 0), debt.Units), answer.err
			continue
		}
		var t Taken
		if t, errs[i] = limit.understandChange(res, calls[i].keys[0], -debt.Units, take{}); errs[i] == nil {
			debt.Excess = Excess(limit.policy, t.After, t.At, debt.Units)
		}
	}
	return errs
}

// Excess returns how many of the units last charged to a word are above the limit at an instant,
// rounded up. Under a limit that grants units on credit it returns 0.
func Excess(limit policy.Policy, word uint64, now policy.Instant, units int64) int64 {
	_, credit := limit.(shape.OnCredit)
	if _, decision := limit.Take(word, now, 0, 0); credit || decision.Remaining > 0 {
		return 0
	}
	// A key has a unit left once the units above its limit, and one more, are given back.
	return int64(sort.Search(int(min(units, maxBack)), func(n int) bool {
		_, decision := limit.Take(limit.(policy.Refunder).Refund(word, now, int64(n)+1), now, 0, 0)
		return decision.Remaining > 0
	}))
}

// understandCharge sets the excess of a debt. before and after are the words around the charge. It returns an error if
// the policy would charge the word otherwise.
func (l *Limit) understandCharge(now policy.Instant, before, after rueidis.RedisMessage, name string, debt *Debt) error {
	word, err := parseWord(before, after.IsNil(), name)
	if err != nil {
		return err
	}
	did, err := parseWord(after, false, name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDisagrees, err)
	}
	debt.Excess = Excess(l.policy, did, now, debt.Units)
	return l.agrees(name, found{word: word, now: now}, -debt.Units, take{}, did, false)
}

// chargeScript returns the script of ChargeEach.
func (s *Store) chargeScript(algorithm algorithm) *script {
	format, _, _ := strings.Cut(writeLua, "redis.call")
	return s.newScript(timeLua, strings.NewReplacer(
		"PARAMS", algorithm.params, "UNPACK", strings.NewReplacer("ARGV[1]", "ARGV[i]", "local ", "").Replace(algorithm.unpack()),
		"READ", strings.NewReplacer("local w = redis.call('GET', key)\n", "", "local h", "h").Replace(readLua),
		"BODY", algorithm.body, "FORMAT", strings.Replace(format, "local word", "word", 1),
	).Replace(lua("charge")))
}
