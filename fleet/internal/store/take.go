package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/policy"
)

// TakeOne is TakeEach for one ask.
func (s *Store) TakeOne(ctx context.Context, ask TakeAsk) (taken Taken, err error) {
	s.TakeEach(ctx, []TakeAsk{ask}, func(_ int, t Taken, e error) { taken, err = t, e })
	return taken, err
}

// TakeEach takes all units of an ask or none, for each ask by itself, in one round trip: see
// policy.Policy.Take. It calls reply once for each ask before it returns. One script decides all asks
// for equal units of a limit, at one instant. In a cluster each ask has a script of its own.
func (s *Store) TakeEach(ctx context.Context, asks []TakeAsk, reply func(i int, t Taken, err error)) {
	var groups []*takes
	apart := s.apart.Load() || s.client.Mode() == rueidis.ClientModeCluster
	for i := range asks {
		name, err := nameIn(asks[i].Limit.prefix, asks[i].Key)
		if err != nil {
			reply(i, Taken{}, err)
			continue
		}
		index := -1
		if !apart {
			index = slices.IndexFunc(groups, func(g *takes) bool { return g.like(&asks[i], name) })
		}
		if index < 0 {
			index = len(groups)
			groups = append(groups, &takes{TakeAsk: asks[i], index: make(map[string]int)})
		}
		groups[index].add(i, name)
	}
	calls := make([]call, len(groups))
	for i, g := range groups {
		calls[i].keys = slices.Concat(g.names, g.blocks)
		switch {
		case g.noted():
			calls[i].keys = logNames(calls[i].keys, g.names)
		case g.Limit.inFlight != nil:
			calls[i].keys = append(calls[i].keys, g.Limit.inFlight.mark)
		}
		calls[i].script, calls[i].args = s.asking(g)
	}
	for i, res := range s.run(ctx, calls) {
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
	names []string
	// blocks are the blocks of names.
	blocks []string
	// counts has the number of calls for each name.
	counts []byte
	// index has the place of each name in names.
	index map[string]int
	calls []struct{ ask, name int }
}

// like reports whether the ask for the name may join them.
func (g *takes) like(a *TakeAsk, name string) bool {
	if index, there := g.index[name]; there && g.counts[index] == math.MaxUint8 {
		// A script reads each word once.
		return false
	}
	return g.Limit == a.Limit && g.N == a.N && g.Patience == a.Patience && g.noted() == a.noted() && !a.Limit.wordless() && a.Limit.canTake(a.N)
}

func (g *takes) add(ask int, name string) {
	index, there := g.index[name]
	if !there {
		index = len(g.names)
		g.index[name] = index
		g.names, g.blocks, g.counts = append(g.names, name), append(g.blocks, g.Limit.blockName(name)), append(g.counts, 0)
	}
	g.counts[index]++
	g.calls = append(g.calls, struct{ ask, name int }{ask, index})
}

// asking returns the script for the calls, and its arguments.
func (s *Store) asking(g *takes) (*script, []string) {
	l, n := g.Limit, g.N
	if !l.canTake(n) {
		n = 0
	}
	switch {
	case l.inFlight != nil:
		return l.take, []string{l.inFlightFigures(n), g.ID}
	case l.log != nil:
		return l.take, []string{packed(l.logFigures(n, g.Patience))}
	case n == 0:
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
	if err == nil && !l.wordless() && l.canTake(g.N) && len(parts) < 1+2*len(g.names) {
		err = fmt.Errorf("%w (a reply of %d parts)", ErrDisagrees, len(parts))
	}
	first := &answer{parts: parts, name: g.names[0]}
	switch {
	case err != nil:
		for _, c := range g.calls {
			reply(c.ask, Taken{}, explain(err, g.names[c.name]))
		}
		return
	case l.wordless():
		t, err := l.understandSet(first, g)
		reply(g.calls[0].ask, t, err)
		return
	case !l.canTake(g.N):
		f, err := first.found(l)
		var t Taken
		if err == nil {
			t, err = l.decide(g.names[0], &f, g.N, g.Patience)
		}
		reply(g.calls[0].ask, t, err)
		return
	}
	type key struct {
		found
		// taken is the number of calls left that took.
		taken int64
		err   error
	}
	keys := make([]key, len(g.names))
	for i, name := range g.names {
		k := &keys[i]
		r := answer{parts: []rueidis.RedisMessage{parts[1+2*i], parts[0], parts[2+2*i]}, name: name}
		var us int64
		k.word, us, k.taken = r.word()
		k.now, k.err = instant(us), r.err
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

// understandSet reads the reply of a limit without words.
func (l *Limit) understandSet(r *answer, g *takes) (Taken, error) {
	var t, standing Taken
	var block uint64
	if l.inFlight != nil {
		f := l.readInFlight(r)
		t, standing, block = l.decideInFlight(f, g.N), l.decideInFlight(f, 0), f.block
	} else {
		f := l.readLog(r)
		t, standing, block = l.decideLog(f, g.N, g.Patience), l.decideLog(f, 0, 0), f.block
	}
	if r.err != nil {
		return Taken{}, r.err
	}
	l.rule.obey(&t, block, g.N, true, func() policy.Decision { return standing.Decision })
	return t, nil
}

// takeScript decides calls on words. It replies the time; for each key the old word or Redis's
// error, and the number of calls that took, -1 for a foreign value; then the blocks that it found.
// Before it, parts may define functions.
func (s *Store) takeScript(a algorithm, parts ...string) *script {
	body := a.body
	if strings.HasSuffix(a.params, "rest") {
		body = "local rest = rest\n" + body
	}
	format, _, _ := strings.Cut(writeLua, "redis.call")
	return s.newScript(strings.Join(parts, ""), timeLua, a.unpack(), s.rule.local(), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "BODY", body, "FORMAT", format,
		"BLOCK", blockLua, "PUNISH", punishLua,
	).Replace(lua("takes")))
}
