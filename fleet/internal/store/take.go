package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/policy"
)

// Taken is the result of a call.
type Taken struct {
	policy.Decision
	// Before and After are the key's words around the call, equal if nothing was taken. For a log
	// Before is 0, and After the number of the first unit taken, or 0.
	Before, After uint64
	// At is the time of the decision, by Redis's clock.
	At policy.Instant
	// Block is the effect of the key's block. RetryAfter and ResetAfter are not before its end.
	Block Block
}

// TakeAsk asks for N units of a key.
type TakeAsk struct {
	Limit    *Limit
	Key      string
	N        int64
	Patience time.Duration
	// Returns reports whether the units may come back later by Keep. Then the take is noted.
	Returns bool
}

// Take takes n units of the key, or none, in a call of Redis. See policy.Policy.Take.
func (s *Store) Take(ctx context.Context, l *Limit, key string, n int64, patience time.Duration) (Taken, error) {
	return s.TakeOne(ctx, TakeAsk{Limit: l, Key: key, N: n, Patience: patience})
}

// TakeOne is TakeEach for one ask.
func (s *Store) TakeOne(ctx context.Context, ask TakeAsk) (taken Taken, err error) {
	s.TakeEach(ctx, []TakeAsk{ask}, func(_ int, t Taken, e error) { taken, err = t, e })
	return taken, err
}

// TakeEach is Take for each ask by itself, in a round trip. It calls reply once for each before
// it returns. A script decides the asks for equal units of a limit, at one instant; in a
// cluster each has its own.
func (s *Store) TakeEach(ctx context.Context, asks []TakeAsk, reply func(i int, t Taken, err error)) {
	var groups []*takes
	apart := s.apart.Load() || s.client.Mode() == rueidis.ClientModeCluster
	for i := range asks {
		name, err := s.name(asks[i].Limit.prefix, asks[i].Key)
		if err != nil {
			reply(i, Taken{}, err)
			continue
		}
		at := -1
		if !apart {
			at = slices.IndexFunc(groups, func(g *takes) bool { return g.like(&asks[i], name) })
		}
		if at < 0 {
			at = len(groups)
			groups = append(groups, &takes{TakeAsk: asks[i], index: make(map[string]int)})
		}
		groups[at].add(i, name)
	}
	calls := make([]call, len(groups))
	for i, g := range groups {
		calls[i].keys = slices.Concat(g.names, g.blocks)
		if g.noted() {
			calls[i].keys = logNames(calls[i].keys, g.names)
		}
		calls[i].script, calls[i].args = s.asking(g)
	}
	for i, res := range s.runAll(ctx, calls) {
		g := groups[i]
		if err := res.Error(); err != nil && len(g.names) > 1 && errors.Is(explain(err, ""), ErrCrossSlot) {
			// A proxy hides a cluster. Nothing was done.
			s.apart.Store(true)
			again := make([]TakeAsk, len(g.calls))
			for j, c := range g.calls {
				again[j] = asks[c.ask]
			}
			s.TakeEach(ctx, again, func(j int, t Taken, err error) { reply(g.calls[j].ask, t, err) })
			continue
		}
		g.understand(res, reply)
	}
}

// takes are calls that differ only in the key.
type takes struct {
	TakeAsk
	names  []string
	blocks []string       // of names
	counts []byte         // calls for each
	index  map[string]int // of names
	calls  []struct{ ask, name int }
}

// like reports whether the ask for the name may join them.
func (g *takes) like(a *TakeAsk, name string) bool {
	if at, there := g.index[name]; there && g.counts[at] == math.MaxUint8 {
		return false // a script reads each word once
	}
	return g.Limit == a.Limit && g.N == a.N && g.Patience == a.Patience && g.noted() == a.noted() && a.Limit.log == nil && a.Limit.canTake(a.N)
}

func (g *takes) add(ask int, name string) {
	at, there := g.index[name]
	if !there {
		at = len(g.names)
		g.index[name] = at
		g.names, g.blocks, g.counts = append(g.names, name), append(g.blocks, g.Limit.blockName(name)), append(g.counts, 0)
	}
	g.counts[at]++
	g.calls = append(g.calls, struct{ ask, name int }{ask, at})
}

// asking returns the script for the calls, and its arguments.
func (s *Store) asking(g *takes) (*script, []string) {
	l := g.Limit
	switch {
	case l.log != nil && !l.canTake(g.N):
		return l.take, []string{packed(l.logFigures(0, g.Patience))}
	case l.log != nil:
		return l.take, []string{packed(l.logFigures(g.N, g.Patience))}
	case !l.canTake(g.N):
		return s.scripts.look, nil
	case g.noted():
		return l.noting, []string{packed(l.notingFigures(g.N, g.Patience)), string(g.counts)}
	case g.N == 1 && g.Patience <= 0:
		return l.take, []string{l.one, string(g.counts)}
	}
	return l.take, []string{packed(l.figures(g.N, g.Patience)), string(g.counts)}
}

func (g *takes) understand(res rueidis.RedisResult, reply func(i int, t Taken, err error)) {
	l := g.Limit
	parts, err := res.ToArray()
	if err == nil && l.log == nil && l.canTake(g.N) && len(parts) < 1+2*len(g.names) {
		err = fmt.Errorf("%w (a reply of %d parts)", ErrDisagrees, len(parts))
	}
	switch {
	case err != nil:
		for _, c := range g.calls {
			reply(c.ask, Taken{}, explain(err, g.names[c.name]))
		}
		return
	case l.log != nil:
		t, err := l.understandLog(parts, g)
		reply(g.calls[0].ask, t, err)
		return
	case !l.canTake(g.N):
		f, err := parseWithBlock(parts, g.names[0], l)
		var t Taken
		if err == nil {
			t, err = l.decide(g.names[0], &f, g.N, g.Patience)
		}
		reply(g.calls[0].ask, t, err)
		return
	}
	type key struct {
		found
		taken int64 // calls left that took
		err   error
	}
	keys := make([]key, len(g.names))
	for i, name := range g.names {
		k := &keys[i]
		if k.found, k.err = parseParts([]rueidis.RedisMessage{parts[1+2*i], parts[0], parts[2+2*i]}, name); k.err == nil {
			k.taken, k.err = parts[2+2*i].AsInt64()
		}
	}
	for rest := parts[1+2*len(g.names):]; len(rest) > 1; rest = rest[2:] {
		i, err := rest[0].AsInt64()
		if err != nil || i < 1 || i > int64(len(keys)) {
			continue
		}
		if k := &keys[i-1]; k.err == nil {
			k.block, k.err = parseBlock(rest[1], g.blocks[i-1])
		}
	}
	for _, c := range g.calls {
		k := &keys[c.name]
		var t Taken
		if k.err == nil {
			k.found.taken = k.taken > 0
			t, k.err = l.decide(g.names[c.name], &k.found, g.N, g.Patience)
			k.word = t.After
			k.taken--
		}
		reply(c.ask, t, k.err)
	}
}

func (l *Limit) understandLog(parts []rueidis.RedisMessage, g *takes) (Taken, error) {
	f, err := l.parseLog(parts, g.names[0])
	if err != nil {
		return Taken{}, err
	}
	t := l.decideLog(f, g.N, g.Patience)
	l.heedLog(&t, f, f.block, g.N, true)
	return t, nil
}

// Peek returns the key's state.
func (s *Store) Peek(ctx context.Context, l *Limit, key string) (Taken, error) {
	return s.Take(ctx, l, key, 0, 0)
}

// canTake reports whether n units can ever be taken.
func (l *Limit) canTake(n int64) bool { return n > 0 && n <= l.limit }

// found is a script's reply.
type found struct {
	word  uint64
	at    policy.Instant
	taken bool
	block uint64 // word of the key's block
	// counted reports that a refusal has counted: no other does.
	counted bool
}

// decide has the policy decide, which must agree with the script, and updates f.block.
func (l *Limit) decide(name string, f *found, n int64, patience time.Duration) (Taken, error) {
	next, d := l.policy.Take(f.word, f.at, n, patience)
	blocked := l.rule.blockedFor(f.block, f.at) > 0
	if (d.Allowed && !blocked) != f.taken && n != 0 {
		return Taken{}, fmt.Errorf("%w (%v, %s: word %d at %d, %d units, patience %v: the script says %t)",
			ErrDisagrees, l.policy, shown(name), f.word, f.at, n, patience, f.taken)
	}
	t := Taken{Decision: d, Before: f.word, After: next, At: f.at}
	if f.block != 0 || !d.Allowed && l.rule.Refusals > 0 {
		l.heed(&t, f, n)
	}
	return t, nil
}

func (l *Limit) heed(t *Taken, f *found, n int64) {
	f.block = l.rule.heed(t, f.block, n, !f.counted, func() policy.Decision { return l.standing(f.word, f.at).Decision })
}

// parseWithBlock reads the reply {word, time, taken, block} of a script.
func parseWithBlock(reply []rueidis.RedisMessage, name string, l *Limit) (found, error) {
	if len(reply) == 3 {
		return parseParts(reply, name)
	}
	f, err := parseParts(reply[:min(len(reply), 3)], name)
	if err == nil {
		f.block, err = parseBlock(reply[3], l.blockName(name))
	}
	return f, err
}

// parse reads the reply {word, time, taken} of a script.
func parse(res rueidis.RedisResult, name string) (found, error) {
	reply, err := res.ToArray()
	if err != nil {
		return found{}, explain(err, name)
	}
	return parseParts(reply, name)
}

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
	f.word, err = parseWord(word, did < 0, name)
	return f, err
}

// parseWord reads Redis's form of a word, nil for 0. foreign says that a script found no word.
func parseWord(reply rueidis.RedisMessage, foreign bool, name string) (word uint64, err error) {
	if reply.IsNil() {
		return 0, nil
	}
	value, err := reply.ToString()
	if err != nil {
		return 0, explain(err, name)
	}
	if !foreign {
		word, err = strconv.ParseUint(value, 10, 64)
	}
	if foreign || err != nil || word > policy.MaxWord {
		return 0, notAWord(name, value)
	}
	return word, nil
}

// instant converts microseconds since the epoch.
func instant(us int64) policy.Instant {
	const most = math.MaxInt64 / 1000
	return policy.Instant(min(max(us, -most), most) * 1000)
}
