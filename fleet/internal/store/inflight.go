package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/policy"
)

// MaxInFlight is the highest limit in flight: Redis keeps an entry for each unit.
const MaxInFlight = 10_000

// inFlightParams are the parameters of a limit in flight and a call.
var inFlightParams = newAlgorithm(lua("inflight"), "n, limit, term, longest")

// inFlightReply is a script's reply about a limit in flight. It has the units in use before the call, the time, and
// whether the call took units. Then it has the time until enough units leave, and until all units leave, unless they
// are confirmed, and last whether no unit may enter yet. Scripts that read the key's block append it.
const inFlightReply = "{used, us, taken, rest, reset, from > us and 1 or 0, b}"

// InFlight returns the name of the mark beside the limit's sets, the time for which units count there without
// being confirmed, and the longest time that they may be in use. ok is false unless the limit is in flight.
func (l *Limit) InFlight() (mark string, term, longest time.Duration, ok bool) {
	if l.inFlight == nil {
		return "", 0, 0, false
	}
	return l.inFlight.mark, l.inFlight.term, l.inFlight.longest, true
}

// InFlightFor returns how long a unit of the policy may be in flight. ok is false unless its units are in use
// until they are released.
func InFlightFor(limit policy.Policy) (longest time.Duration, ok bool) {
	_, occupies := limit.(policy.Occupier)
	window, ok := limit.(policy.Windowed)
	if !occupies || !ok {
		return 0, false
	}
	return window.Window(), true
}

// Wordless reports whether Redis keeps a set for a key of the policy in place of a word.
func Wordless(limit policy.Policy) bool {
	_, logged := limit.(*slidinglog.Log)
	_, inFlight := InFlightFor(limit)
	return logged || inFlight
}

// inFlightLimit prepares a limit in flight.
func (s *Store) inFlightLimit(limit policy.Policy, longest time.Duration) (*Limit, error) {
	if limit.Limit() > MaxInFlight {
		return nil, &policy.FieldError{Of: "fleet.Config", Field: "Policy", Value: limit, Want: fmt.Sprintf(
			"at most %d in flight: Redis keeps an entry for each unit", MaxInFlight)}
	}
	return &Limit{
		policy: limit, blocks: s.blocks, rule: s.rule, limit: limit.Limit(), prefix: s.options.name("i:"), take: s.enterScript(),
		inFlight: &inFlight{longest: wholeMicros(longest), term: wholeMicros(s.options.Term), mark: s.options.name("inflight")},
	}, nil
}

// fill puts the parts for limits in flight into a script.
func fill(script string) string {
	return strings.NewReplacer(
		"INFLIGHTREPLY", inFlightReply, "INFLIGHT", lua("inflight"), "ENTER", lua("inflightenter"), "MARK", lua("inflightmark"),
		"RUN", strings.TrimSpace(lua("inflightrun")),
	).Replace(script)
}

// enterScript returns the script by which all units of a call enter, or none.
func (s *Store) enterScript() *script {
	return s.newScript(
		"local key, blockKey, markKey, id, held = KEYS[1], KEYS[2], KEYS[3], ARGV[2], 0\n", timeLua, inFlightParams.unpack(), s.rule.local(),
		"local b = redis.call('GET', blockKey)\n", blockLua, fill("INFLIGHT\n"),
		"if blocked or level < 0 then taken = 0 end\n",
		fill("if emptied and n > 0 then\nMARK\nend\nif taken == 1 and n > 0 then\nENTER\nend\n"),
		"local refusals = 0\nif taken == 0 and n > 0 and from <= us then refusals = 1 end\n", punishLua,
		fill("return INFLIGHTREPLY\n"))
}

func (l *Limit) inFlightFigures(n int64) string {
	us := func(duration time.Duration) float64 { return float64(duration / time.Microsecond) }
	return packed([]float64{float64(n), float64(l.limit), us(l.inFlight.term), us(l.inFlight.longest)})
}

func (l *Limit) decideInFlight(found foundSet, n int64) Taken {
	taken := Taken{At: instant(found.us), Decision: policy.Decision{Limit: l.limit}, Emptied: found.emptied}
	used, reset := found.used, found.reset
	switch {
	case n < 0 || n > l.limit:
		taken.RetryAfter = policy.Never
	case n == 0:
		taken.Allowed = true
	case found.taken:
		taken.Allowed = true
		used, reset = used+n, max(reset, int64(min(l.inFlight.term, l.inFlight.longest)/time.Microsecond))
	default:
		taken.RetryAfter = time.Duration(max(found.rest, 1)) * time.Microsecond
	}
	if found.emptied {
		reset = max(reset, found.rest)
	} else {
		taken.Remaining = max(l.limit-used, 0)
	}
	taken.ResetAfter = time.Duration(reset) * time.Microsecond
	return taken
}

// Confirm describes a slot to confirm. A slot is the units of a key that one call has in use.
type Confirm = slots.Confirm

// Confirmed is the answer to Confirm.
type Confirmed struct {
	// Run is the ID of the Redis process. It is empty if Redis does not allow the question.
	Run string
	// There has, for each slot, whether its units still count.
	There []bool
}

// maxConfirms bounds the slots that a script confirms, since other calls wait meanwhile.
const maxConfirms = 64

// Confirm keeps the units of slots in use for another term, in a round trip. The caller should put slots with the same
// key and Run next to each other, since one script confirms them together.
func (s *Store) Confirm(ctx context.Context, limit *Limit, slots []Confirm) (confirmed Confirmed, err error) {
	us := func(duration time.Duration) string { return strconv.FormatInt(max(duration.Microseconds(), 1), 10) }
	mark := limit.inFlight.mark
	calls := []call{{script: s.scripts.beat, keys: []string{mark}, args: []string{us(limit.inFlight.term)}}}
	for i, slot := range slots {
		last := &calls[len(calls)-1]
		if i == 0 || slot.Key != slots[i-1].Key || slot.Run != slots[i-1].Run || i-last.index >= maxConfirms {
			name, err := nameIn(limit.prefix, slot.Key)
			if err != nil {
				return confirmed, err
			}
			calls = append(calls, call{index: i, script: s.scripts.confirm, keys: []string{name}, args: []string{us(limit.inFlight.term), slot.Run}})
			last = &calls[len(calls)-1]
		}
		last.args = append(last.args, slot.ID, strconv.FormatInt(slot.N, 10), us(slot.Left))
	}
	results := s.run(ctx, calls)
	if confirmed.Run, err = results[0].ToString(); err != nil {
		return confirmed, classify(err, mark)
	}
	for i, res := range results[1:] {
		there, err := res.AsIntSlice()
		if err != nil {
			return confirmed, classify(err, calls[i+1].keys[0])
		}
		for _, one := range there {
			confirmed.There = append(confirmed.There, one == 1)
		}
	}
	if len(confirmed.There) != len(slots) {
		return confirmed, fmt.Errorf("%w (%d replies for %d slots)", ErrDisagrees, len(confirmed.There), len(slots))
	}
	return confirmed, nil
}

// Release gives the n units of a slot back, and returns how many still counted.
func (s *Store) Release(ctx context.Context, limit *Limit, key, id string, n int64) (int64, error) {
	name, err := nameIn(limit.prefix, key)
	if err != nil {
		return 0, err
	}
	left, err := s.runOne(ctx, s.scripts.leave, []string{name}, id, strconv.FormatInt(n, 10)).AsInt64()
	if err != nil {
		return 0, classify(err, name)
	}
	return left, nil
}
