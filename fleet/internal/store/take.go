package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/policy"
)

// Taken is what became of a call.
type Taken struct {
	policy.Decision
	// Before and After are the key's word before the call and after it, the same if
	// nothing was taken. Of a log, Before is 0, and After the number of the first unit
	// taken, or 0.
	Before, After uint64
	// At is when it was decided, by Redis's clock.
	At policy.Instant
}

// TakeAsk is what a call asks: N units of a key.
type TakeAsk struct {
	Limit    *Limit
	Key      string
	N        int64
	Patience time.Duration
}

// Take takes n units of the key, or none. See policy.Policy.Take. One call of Redis.
func (s *Store) Take(ctx context.Context, l *Limit, key string, n int64, patience time.Duration) (taken Taken, err error) {
	s.TakeEach(ctx, []TakeAsk{{Limit: l, Key: key, N: n, Patience: patience}}, func(_ int, t Taken, e error) { taken, err = t, e })
	return taken, err
}

// TakeEach is Take for each of the asks, each for itself, in one round trip. reply is told
// what became of each, once, before it returns.
func (s *Store) TakeEach(ctx context.Context, asks []TakeAsk, reply func(i int, t Taken, err error)) {
	calls := make([]call, 0, len(asks))
	for i := range asks {
		a := &asks[i]
		name, err := s.name(a.Limit.prefix, a.Key)
		if err != nil {
			reply(i, Taken{}, err)
			continue
		}
		sc, args := s.asking(a.Limit, a.N, a.Patience)
		calls = append(calls, call{i, sc, name, args})
	}
	for i, res := range s.runAll(ctx, calls) {
		c := &calls[i]
		a := &asks[c.index]
		t, err := a.Limit.understand(res, c.key, a.N, a.Patience)
		reply(c.index, t, err)
	}
}

// asking returns what Redis is to run for a call, and what that is told.
func (s *Store) asking(l *Limit, n int64, patience time.Duration) (*script, []string) {
	switch {
	case l.log != nil && !l.takes(n):
		return l.take, []string{packed(l.logFigures(0, patience))}
	case l.log != nil:
		return l.take, []string{packed(l.logFigures(n, patience))}
	case !l.takes(n):
		return s.scripts.read, nil
	case n == 1 && patience <= 0:
		return l.take, l.one
	}
	return l.take, []string{packed(l.figures(n, patience))}
}

// understand tells what a call's script replied.
func (l *Limit) understand(res rueidis.RedisResult, name string, n int64, patience time.Duration) (Taken, error) {
	reply, err := res.ToArray()
	if err != nil {
		return Taken{}, explain(err, name)
	}
	if l.log != nil {
		f, err := parseLog(reply, name)
		if err != nil {
			return Taken{}, err
		}
		return l.decideLog(f, n, patience), nil
	}
	f, err := parseParts(reply, name)
	if err != nil {
		return Taken{}, err
	}
	return l.decide(name, f, n, patience)
}

// Peek tells how the key stands.
func (s *Store) Peek(ctx context.Context, l *Limit, key string) (Taken, error) {
	return s.Take(ctx, l, key, 0, 0)
}

// takes tells whether a call of n units can take anything, ever.
func (l *Limit) takes(n int64) bool { return n > 0 && n <= l.limit }

// found is what a script found and did.
type found struct {
	word  uint64
	at    policy.Instant
	taken bool
}

// decide has the policy tell the decision, which must be what the script did.
func (l *Limit) decide(name string, f found, n int64, patience time.Duration) (Taken, error) {
	next, d := l.policy.Take(f.word, f.at, n, patience)
	if d.Allowed != f.taken && n != 0 {
		return Taken{}, fmt.Errorf("%w (%v, %s: word %d at %d, %d units, patience %v: the script says %t)",
			ErrDisagrees, l.policy, shown(name), f.word, f.at, n, patience, f.taken)
	}
	return Taken{Decision: d, Before: f.word, After: next, At: f.at}, nil
}

// read returns a key's word, and Redis's time.
func (s *Store) read(ctx context.Context, name string) (uint64, policy.Instant, error) {
	f, err := parse(s.run(ctx, s.scripts.read, []string{name}, nil), name)
	return f.word, f.at, err
}

// parse understands the reply {word, time, taken} of a script.
func parse(res rueidis.RedisResult, name string) (found, error) {
	reply, err := res.ToArray()
	if err != nil {
		return found{}, explain(err, name)
	}
	return parseParts(reply, name)
}

// parseParts understands the parts of such a reply.
func parseParts(reply []rueidis.RedisMessage, name string) (f found, err error) {
	if len(reply) != 3 {
		return found{}, fmt.Errorf("%w (a reply of %d parts)", ErrDisagrees, len(reply))
	}
	word, at, taken := reply[0], reply[1], reply[2]
	did, err := taken.AsInt64()
	if err != nil {
		return found{}, explain(err, name)
	}
	us, err := at.AsInt64()
	if err != nil {
		return found{}, explain(err, name)
	}
	f.taken, f.at = did > 0, instant(us)
	if word.IsNil() {
		return f, nil
	}
	value, err := word.ToString()
	if err != nil {
		return found{}, explain(err, name)
	}
	if did >= 0 {
		f.word, err = strconv.ParseUint(value, 10, 64)
	}
	if did < 0 || err != nil || f.word > policy.MaxWord {
		return found{}, notAWord(name, value)
	}
	return f, nil
}

// instant converts microseconds since the epoch.
func instant(us int64) policy.Instant {
	const most = math.MaxInt64 / 1000
	return policy.Instant(min(max(us, -most), most) * 1000)
}
