package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// LeaseAsk asks for units ahead of their use. It gets as many units as the key has, at most Most, or none if there are
// fewer than Need.
type LeaseAsk struct {
	Limit      *Limit
	Key        string
	Need, Most int64
}

// LeaseReply is the answer to a LeaseAsk.
type LeaseReply struct {
	// Granted is the number of units taken, 0 if fewer than Need fit.
	Granted int64
	// Taken is the result of a take of Granted units. If Granted is 0, it is the refusal of Need units.
	Taken
	Err error
}

// maxLeased bounds the units of a lease, so that the doubles of a script hold them exactly.
const maxLeased = 1 << 22

// leaseParams has a funnel's interval and depth in place of a call's units and reach.
const leaseParams = "need, most, ih, il, dh, dl, fh, fl, e, x"

func (s *Store) leaseScript(kind shape.Kind) *script {
	algorithm := algorithms[kind]
	body := algorithm.body
	if kind == shape.Funnel {
		algorithm, body = newAlgorithm(algorithm.body, leaseParams), lua("leaseask")+algorithm.body
	} else {
		algorithm = newAlgorithm(algorithm.body, "need, most, "+strings.TrimPrefix(algorithm.params, "n, "))
		body = "local rest = rest\n" + body
	}
	return s.newScript(
		"local key = KEYS[1]\n", timeLua, readLua,
		"if h < 0 then return {w, us, -1} end\n",
		"local b = redis.call('GET', KEYS[2])\n", s.rule.local(), blockLua,
		"if blocked or level < 0 then return {w, us, 0, b} end\n", algorithm.unpack(),
		strings.Replace(lua("lease"), "BODY", body, 1), writeLua,
		"return {w, us, granted}\n")
}

func (l *Limit) leaseFigures(need, most int64) []float64 {
	figures := []float64{float64(need), float64(most)}
	rest := l.figures(1, 0)
	if l.shape.Kind != shape.Funnel {
		return append(figures, rest[1:]...)
	}
	return append(append(figures, pairs(l.shape.Interval, l.shape.Depth)...), rest[4:]...)
}

// Lease takes units for each ask by itself, in a round trip. The limits must be a Funnel, a FixedWindow or a
// SlidingWindow.
func (s *Store) Lease(ctx context.Context, asks []LeaseAsk) []LeaseReply {
	replies := make([]LeaseReply, len(asks))
	names := make([]string, len(asks))
	var calls []call
	for i := range asks {
		leaseAsk := &asks[i]
		if leaseAsk.Limit.lease == nil {
			replies[i].Err = &policy.FieldError{Of: "store.Lease", Field: "Limit", Value: leaseAsk.Limit.policy, Want: "a Funnel, FixedWindow or SlidingWindow"}
			continue
		}
		leaseAsk.Most = min(leaseAsk.Most, leaseAsk.Limit.limit, maxLeased)
		if leaseAsk.Need < 1 || leaseAsk.Need > leaseAsk.Most {
			replies[i].Err = &policy.FieldError{Of: "store.Lease", Field: "Need", Value: leaseAsk.Need, Want: fmt.Sprintf("between 1 and %d", leaseAsk.Most)}
			continue
		}
		if names[i], replies[i].Err = nameIn(leaseAsk.Limit.prefix, leaseAsk.Key); replies[i].Err == nil {
			calls = append(calls, call{i, leaseAsk.Limit.lease, []string{names[i], leaseAsk.Limit.blockName(names[i])}, []string{packed(leaseAsk.Limit.leaseFigures(leaseAsk.Need, leaseAsk.Most))}})
		}
	}
	for i, res := range s.run(ctx, calls) {
		at := calls[i].index
		replies[at] = asks[at].parse(res, names[at])
	}
	return replies
}

func (a *LeaseAsk) parse(res rueidis.RedisResult, name string) (leaseReply LeaseReply) {
	said := read(res, name, 3, 4)
	found, err := said.found(a.Limit)
	if err != nil {
		return LeaseReply{Err: err}
	}
	leaseReply.Granted = found.count
	// One unit more must not fit.
	if leaseReply.Granted < a.Most && a.Limit.rule.blockedFor(found.block, found.now) == 0 {
		more := max(leaseReply.Granted+1, a.Need)
		if _, decision := a.Limit.policy.Take(found.word, found.now, more, 0); decision.Allowed {
			return LeaseReply{Err: fmt.Errorf("%w (%v, %s: %d units are left to lease, the script takes %d)", ErrDisagrees, a.Limit.policy, shown(name), more, leaseReply.Granted)}
		}
	}
	n := leaseReply.Granted
	if n == 0 {
		n = a.Need
	}
	leaseReply.Taken, leaseReply.Err = a.Limit.decide(name, &found, n, 0)
	return leaseReply
}
