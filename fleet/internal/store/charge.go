package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/policy"
)

// Debt is units to charge to the key of a [Tail].
type Debt struct {
	Tail  string
	Units int64
}

// ChargeEach charges each debt like a negative Refund, in a round trip, and returns the error of
// each or nil. A script charges all; in a cluster, and for a log, each has its own. A script
// blocks Redis for some microseconds a debt: callers bound the number.
func (s *Store) ChargeEach(ctx context.Context, l *Limit, debts []Debt) []error {
	errs := make([]error, len(debts))
	apart := s.apart.Load() || l.log != nil || s.client.Mode() == rueidis.ClientModeCluster
	var calls []call
	var indices []int // first the debt of each call, in order
	var all call
	var order []int
	for i, d := range debts {
		name := l.prefix + d.Tail
		figures := "" // the previous debt's
		if apart || i == 0 || d.Units != debts[i-1].Units {
			figures = packed(l.backFigures(-d.Units, take{}))
		}
		if apart {
			calls, indices = append(calls, call{script: l.back, keys: l.backNames(name), args: []string{figures}}), append(indices, i)
			continue
		}
		all.keys, all.args, order = append(all.keys, name), append(all.args, figures), append(order, i)
	}
	if len(order) > 0 {
		all.script = l.charge
		res := s.run(ctx, []call{all})[0]
		if err := res.Error(); err != nil && len(order) > 1 && errors.Is(explain(err, ""), ErrCrossSlot) {
			// A proxy hides a cluster. Nothing was done.
			s.apart.Store(true)
			return s.ChargeEach(ctx, l, debts)
		}
		l.understandCharges(res, all.keys, func(i int, err error) { errs[order[i]] = err }, func(i int) int64 { return debts[order[i]].Units })
	}
	for i, res := range s.run(ctx, calls) {
		_, errs[indices[i]] = l.understandChange(res, calls[i].keys[0], -debts[indices[i]].Units, take{})
	}
	return errs
}

// understandCharges reads the reply on the keys of a script.
func (l *Limit) understandCharges(res rueidis.RedisResult, names []string, reply func(i int, err error), units func(i int) int64) {
	r := read(res, names[0], 1+2*len(names))
	us := r.number()
	for i, name := range names {
		before, after := r.next(), r.next()
		if r.err != nil {
			reply(i, r.err)
			continue
		}
		reply(i, l.understandCharge(instant(us), before, after, name, units(i)))
	}
}

// understandCharge returns an error unless the policy makes after from before.
func (l *Limit) understandCharge(now policy.Instant, before, after rueidis.RedisMessage, name string, units int64) error {
	word, err := parseWord(before, after.IsNil(), name)
	if err != nil {
		return err
	}
	did, err := parseWord(after, false, name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDisagrees, err)
	}
	return l.agrees(name, found{word: word, now: now}, -units, take{}, did, false)
}

func (s *Store) chargeScript(a algorithm) *script {
	format, _, _ := strings.Cut(writeLua, "redis.call")
	return s.newScript(timeLua, strings.NewReplacer(
		"PARAMS", a.params, "UNPACK", strings.NewReplacer("ARGV[1]", "ARGV[i]", "local ", "").Replace(a.unpack()),
		"READ", strings.NewReplacer("local w = redis.call('GET', key)\n", "", "local h", "h").Replace(readLua),
		"BODY", a.body, "FORMAT", strings.Replace(format, "local word", "word", 1),
	).Replace(lua("charge")))
}
