package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/policy"
)

// TakeOne is TakeEach for one ask.
func (s *Store) TakeOne(ctx context.Context, ask TakeAsk) (taken Taken, err error) {
	s.TakeEach(ctx, []TakeAsk{ask}, func(_ int, t Taken, e error) { taken, err = t, e })
	return taken, err
}

// TakeEach decides each ask by itself, and takes all of its units or none: see policy.Policy.Take. It makes one
// round trip, and calls reply once for each ask before it returns. Asks of a limit for the same number of units
// are decided by one script, at one instant. In a cluster each ask has a script of its own.
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
			index = slices.IndexFunc(groups, func(takes *takes) bool { return takes.like(&asks[i], name) })
		}
		if index < 0 {
			index = len(groups)
			groups = append(groups, &takes{TakeAsk: asks[i], index: make(map[string]int)})
		}
		groups[index].add(i, name)
	}
	calls := make([]call, len(groups))
	for i, takes := range groups {
		calls[i].keys = slices.Concat(takes.names, takes.blocks)
		switch {
		case takes.noted():
			calls[i].keys = logNames(calls[i].keys, takes.names)
		case takes.Limit.inFlight != nil:
			calls[i].keys = append(calls[i].keys, takes.Limit.inFlight.mark)
		}
		calls[i].script, calls[i].args = s.asking(takes)
	}
	for i, res := range s.run(ctx, calls) {
		takes := groups[i]
		if err := res.Error(); err != nil && len(takes.names) > 1 && errors.Is(classify(err, ""), ErrCrossSlot) {
			// A proxy hides a cluster. Nothing was done.
			s.apart.Store(true)
			again := make([]TakeAsk, len(takes.calls))
			for j, c := range takes.calls {
				again[j] = asks[c.ask]
			}
			s.TakeEach(ctx, again, func(j int, t Taken, err error) { reply(takes.calls[j].ask, t, err) })
			continue
		}
		takes.understand(res, reply)
	}
}

// takes is a group of asks that differ only in the key.
type takes struct {
	TakeAsk
	names []string
	// blocks are the blocks of names.
	blocks []string
	// counts has the number of calls for each name.
	counts []byte
	// index has the index in names of each name.
	index map[string]int
	// calls has, for each ask of the group, its index in the asks of TakeEach and the index of its name in names.
	calls []struct{ ask, name int }
}

// like reports whether an ask may join the group. name is the name of the ask's key.
func (g *takes) like(takeAsk *TakeAsk, name string) bool {
	if index, there := g.index[name]; there && g.counts[index] == math.MaxUint8 {
		// A script reads each word once.
		return false
	}
	return g.Limit == takeAsk.Limit && g.N == takeAsk.N && g.Patience == takeAsk.Patience && g.noted() == takeAsk.noted() && !takeAsk.Limit.wordless() && takeAsk.Limit.canTake(takeAsk.N)
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

// asking returns the script for a group, and its arguments.
func (s *Store) asking(takes *takes) (*script, []string) {
	limit, n := takes.Limit, takes.N
	if !limit.canTake(n) {
		n = 0
	}
	switch {
	case limit.inFlight != nil:
		return limit.take, []string{limit.inFlightFigures(n), takes.ID}
	case limit.log != nil:
		return limit.take, []string{packed(limit.logFigures(n, takes.Patience))}
	case n == 0:
		return s.scripts.look, nil
	case takes.noted():
		return limit.noting, []string{packed(limit.notingFigures(takes.N, takes.Patience)), string(takes.counts)}
	case takes.N == 1 && takes.Patience <= 0:
		return limit.take, []string{limit.one, string(takes.counts)}
	}
	return limit.take, []string{packed(limit.figures(takes.N, takes.Patience)), string(takes.counts)}
}

// understand reads the reply to a group, and calls reply for each of its asks.
func (g *takes) understand(res rueidis.RedisResult, reply func(i int, t Taken, err error)) {
	limit := g.Limit
	parts, err := res.ToArray()
	if err == nil && !limit.wordless() && limit.canTake(g.N) && len(parts) < 1+2*len(g.names) {
		err = fmt.Errorf("%w (a reply of %d parts)", ErrDisagrees, len(parts))
	}
	first := &answer{parts: parts, name: g.names[0]}
	switch {
	case err != nil:
		for _, c := range g.calls {
			reply(c.ask, Taken{}, classify(err, g.names[c.name]))
		}
		return
	case limit.wordless():
		t, err := limit.understandSet(first, g)
		reply(g.calls[0].ask, t, err)
		return
	case !limit.canTake(g.N):
		found, err := first.found(limit)
		var taken Taken
		if err == nil {
			taken, err = limit.decide(g.names[0], &found, g.N, g.Patience)
		}
		reply(g.calls[0].ask, taken, err)
		return
	}
	type key struct {
		found
		// taken is the number of calls that took units, less those that were replied to.
		taken int64
		err   error
	}
	keys := make([]key, len(g.names))
	for i, name := range g.names {
		key := &keys[i]
		r := answer{parts: []rueidis.RedisMessage{parts[1+2*i], parts[0], parts[2+2*i]}, name: name}
		var us int64
		key.word, us, key.taken = r.word()
		key.now, key.err = instant(us), r.err
	}
	for rest := parts[1+2*len(g.names):]; len(rest) > 1; rest = rest[2:] {
		i, err := rest[0].AsInt64()
		if err != nil || i < 1 || i > int64(len(keys)) {
			continue
		}
		if key := &keys[i-1]; key.err == nil {
			key.block, key.err = parseBlock(rest[1], g.blocks[i-1])
		}
	}
	for _, c := range g.calls {
		key := &keys[c.name]
		var taken Taken
		if key.err == nil {
			key.found.taken = key.taken > 0
			taken, key.err = limit.decide(g.names[c.name], &key.found, g.N, g.Patience)
			key.word = taken.After
			key.taken--
		}
		reply(c.ask, taken, key.err)
	}
}

// understandSet reads the reply of a limit that keeps a set in place of words.
func (l *Limit) understandSet(answer *answer, takes *takes) (Taken, error) {
	found := l.readSet(answer)
	if answer.err != nil {
		return Taken{}, answer.err
	}
	taken := l.decideSet(found, takes.N, takes.Patience)
	l.rule.obey(&taken, found.block, takes.N, true, func() policy.Decision { return l.decideSet(found, 0, 0).Decision })
	return taken, nil
}

// decideSet decides a call of a limit that keeps a set in place of words.
func (l *Limit) decideSet(found foundSet, n int64, patience time.Duration) Taken {
	if l.inFlight != nil {
		return l.decideInFlight(found, n)
	}
	return l.decideLog(found, n, patience)
}

// takeScript returns the script that decides calls on words. The script replies the time, then two parts for each key,
// and then the blocks that it found. The parts of a key are its old word or Redis's error, and the number of calls that
// took units, or -1 for a value that is no word. parts stand before the script and may define functions.
func (s *Store) takeScript(algorithm algorithm, parts ...string) *script {
	body := algorithm.body
	if strings.HasSuffix(algorithm.params, "rest") {
		body = "local rest = rest\n" + body
	}
	format, _, _ := strings.Cut(writeLua, "redis.call")
	return s.newScript(strings.Join(parts, ""), timeLua, algorithm.unpack(), s.rule.local(), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "BODY", body, "FORMAT", format,
		"BLOCK", blockLua, "PUNISH", punishLua,
	).Replace(lua("takes")))
}
