package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Ask is N units of a key, for [Store.TakeAll]. Patience is ignored.
type Ask = TakeAsk

// kinds has the letter of each kind's algorithm in lua/all.lua.
var kinds = map[shape.Kind]string{
	shape.Funnel: "p", shape.Queue: "p", shape.Bursty: "p", shape.FixedWindow: "w", shape.SlidingWindow: "s",
	shape.AlignedWindow: "a",
}

// byLetter has the algorithm of each letter.
var byLetter = map[string]algorithm{
	"p": algorithms[shape.Funnel], "w": algorithms[shape.FixedWindow], "s": algorithms[shape.SlidingWindow],
	"a": algorithms[shape.AlignedWindow], notingKind: paceNoting,
}

// takeFunctions returns the part of a script that defines, for each letter, the function which takes units and the format
// of its parameters.
func takeFunctions(letters ...string) string {
	var head strings.Builder
	head.WriteString("local take, format = {}, {}\n")
	for _, letter := range letters {
		algorithm, more := byLetter[letter], ""
		if letter == notingKind {
			more = ", sh, sl, ah, al"
		}
		fmt.Fprintf(&head, "format.%s = '<%s'\nfunction take.%s(us, h, l, %s)\nlocal ms, sh, sl\n%s\nreturn ms, h, l%s\nend\n",
			letter, strings.Repeat("d", algorithm.count), letter, algorithm.params, algorithm.body, more)
	}
	return head.String()
}

func (s *Store) allScript() *script {
	return s.newScript(timeLua, noteLua, takeFunctions("p", "w", "s", "a", notingKind), strings.NewReplacer(
		"LOGREPLY", logReply, "LOG", logLua, "BLOCK", blockLua, "PUNISH", punishLua, "RECORD", recordLua, "WRITE", writeLua,
		"READ", strings.Replace(readLua, "local h, l =", "h, l =", 1),
	).Replace(fill(lua("all"))))
}

// TakeAll takes the units of every ask, or of none, in a call of Redis. No ask waits: a Queue
// allows an ask only if it may leave at once. If an ask is refused, the decisions of the others are
// those of looks. A key that is asked for twice is charged twice, and the second decision is on the
// word after the first. An ask for no units is a look. In a cluster all keys must share a hash tag.
func (s *Store) TakeAll(ctx context.Context, asks []Ask) ([]Taken, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	// The names of the words, and then of their blocks.
	keys, args := make([]string, 2*len(asks)), make([]string, 2*len(asks)+1)
	// The last argument says whether to write.
	args[len(asks)] = "1"
	// logs has the sum of the units asked of each SlidingLog so far.
	logs := map[string]int64{}
	// more has, for each ask, the name of another key that its limit needs, or "".
	more := make([]string, len(asks))
	for i, takeAsk := range asks {
		var err error
		if keys[i], err = nameIn(takeAsk.Limit.prefix, takeAsk.Key); err != nil {
			return nil, err
		}
		keys[len(asks)+i] = takeAsk.Limit.blockName(keys[i])
		// An ask of a SlidingLog includes the units of the log's earlier asks, so the script takes the sum once.
		ask := takeAsk.N
		if takeAsk.Limit.log != nil && takeAsk.Limit.canTake(takeAsk.N) {
			logs[keys[i]] += takeAsk.N
			ask = logs[keys[i]]
		}
		penalty := takeAsk.Limit.rule.figures()
		// The ask is a look, or a refusal that the key did not cause.
		if !takeAsk.Limit.canTake(ask) {
			if ask != 0 {
				args[len(asks)] = "0"
			}
			ask, penalty[0] = 0, 0
		}
		args[len(asks)+1+i] = packed(penalty)
		switch {
		case takeAsk.Limit.inFlight != nil:
			more[i], args[i] = takeAsk.Limit.inFlight.mark, "i"+takeAsk.Limit.inFlightFigures(ask)+takeAsk.ID
		case takeAsk.Limit.log != nil:
			args[i] = "l" + packed(takeAsk.Limit.logFigures(ask, 0))
		case ask == 0:
			args[i] = "-"
		case takeAsk.noted():
			more[i] = logName(keys[i])
			args[i] = notingKind + packed(takeAsk.Limit.notingFigures(ask, 0))
		default:
			args[i] = kinds[takeAsk.Limit.shape.Kind] + packed(takeAsk.Limit.atOnce(ask))
		}
	}
	if err := s.together(keys[:len(asks)]); err != nil {
		return nil, err
	}
	reply, err := s.runOne(ctx, s.scripts.all, withMore(keys, more), args...).ToArray()
	if err != nil {
		return nil, classify(err, keys[:len(asks)]...)
	}
	return decideAll(asks, keys, reply)
}

// withMore appends the names of more to the keys, unless all are "". In the place of a "" it appends the name of the
// ask's key.
func withMore(keys, more []string) []string {
	if !slices.ContainsFunc(more, func(name string) bool { return name != "" }) {
		return keys
	}
	all := slices.Clip(keys)
	for i, name := range more {
		all = append(all, cmp.Or(name, keys[i]))
	}
	return all
}

// decideAll reads the reply of TakeAll's script. The policies decide each ask again, and must agree with the script.
func decideAll(asks []Ask, keys []string, reply []rueidis.RedisMessage) ([]Taken, error) {
	// The script replies the number of a key, and its value, if the value is no word.
	if len(reply) == 2 && reply[0].IsInt64() {
		i, _ := reply[0].AsInt64()
		value, _ := reply[1].ToString()
		if i < 1 || i > int64(len(keys)) {
			return nil, fmt.Errorf("%w (a reply about key %d)", ErrDisagrees, i)
		}
		return nil, notAWord(keys[i-1], value)
	}
	if len(reply) != len(asks) {
		return nil, fmt.Errorf("%w (%d replies for %d keys)", ErrDisagrees, len(reply), len(asks))
	}
	taken, standing := make([]Taken, len(asks)), make([]Taken, len(asks))
	allowed := true
	type words struct{ before, now uint64 }
	type block struct {
		word uint64
		// counted reports whether a refusal of the key has counted for the penalty.
		counted bool
	}
	// A name may occur twice, so these are by name.
	seen, logs, blocks := map[string]words{}, map[string]int64{}, map[string]block{}
	// fits has, for each key without a word, the sum of the units of its allowed asks so far.
	fits := map[string]int64{}
	// obey applies a key's block, as it was read, to the decision of a limit without words.
	obey := func(i int, read uint64) {
		takeAsk, blockName := asks[i], keys[len(asks)+i]
		block, twice := blocks[blockName]
		if !twice {
			block.word = read
		}
		block.word = takeAsk.Limit.rule.obey(&taken[i], block.word, takeAsk.N, !block.counted, func() policy.Decision { return standing[i].Decision })
		block.counted = block.counted || counts(&taken[i])
		blocks[blockName] = block
		if taken[i].Allowed {
			fits[keys[i]] += takeAsk.N
		}
	}
	for i, takeAsk := range asks {
		blockName := keys[len(asks)+i]
		parts, err := reply[i].ToArray()
		if err != nil {
			return nil, classify(err, keys[i])
		}
		r := &answer{parts: parts, name: keys[i]}
		if takeAsk.Limit.wordless() {
			found := takeAsk.Limit.readSet(r)
			if r.err != nil {
				return nil, r.err
			}
			still, ask, earlier := found, takeAsk.N, fits[keys[i]]
			switch {
			case takeAsk.Limit.inFlight != nil:
				// If any ask is refused, the earlier asks have taken nothing, and the look does not count them.
				still.used -= earlier
			case ask == 0 && earlier > 0:
				// This look comes after the earlier asks, so their units count.
				found.used, found.newest = found.used+earlier, max(found.newest, logTime(found.us))
			case takeAsk.Limit.canTake(ask):
				logs[keys[i]] += ask
				ask = logs[keys[i]]
			}
			taken[i], standing[i] = takeAsk.Limit.decideSet(found, ask, 0), takeAsk.Limit.decideSet(still, 0, 0)
			obey(i, found.block)
		} else {
			found, err := r.found(takeAsk.Limit)
			if err != nil {
				return nil, err
			}
			b, twice := blocks[blockName]
			if twice {
				found.block = b.word
			}
			found.counted = b.counted
			word, there := seen[keys[i]]
			if !there {
				word = words{found.word, found.word}
			}
			found.word = word.now
			if taken[i], err = takeAsk.Limit.decideAtOnce(keys[i], &found, takeAsk.N); err != nil {
				return nil, err
			}
			blocks[blockName] = block{found.block, b.counted || counts(&taken[i])}
			word.now = taken[i].After
			seen[keys[i]] = word
			standing[i] = takeAsk.Limit.standing(word.before, found.now)
		}
		allowed = allowed && taken[i].Allowed
	}
	for i := range taken {
		if !allowed && taken[i].Allowed {
			taken[i] = standing[i]
		}
	}
	return taken, nil
}

// counts reports whether a decision is a refusal by the key's own limit. Such refusals of one call count
// once for the key's penalty.
func counts(t *Taken) bool {
	return !t.Allowed && !t.Block.Refused && t.RetryAfter != policy.Never && !t.Emptied
}

// atOnce returns the parameters of a take that must start at once.
func (l *Limit) atOnce(n int64) []float64 {
	figures := l.figures(n, 0)
	if l.shape.Kind == shape.Queue {
		figures[2], figures[3] = 0, 0
	}
	return figures
}

// decideAtOnce is decide for a take that must start at once: a call that would wait is refused.
func (l *Limit) decideAtOnce(name string, found *found, n int64) (Taken, error) {
	found.taken = found.taken && l.canTake(n)
	if _, decision := l.policy.Take(found.word, found.now, n, 0); decision.Wait > 0 && !found.taken {
		taken := l.standing(found.word, found.now)
		taken.Allowed, taken.RetryAfter = false, decision.Wait
		l.obey(&taken, found, n)
		return taken, nil
	}
	return l.decide(name, found, n, 0)
}

// together returns an error if names in a cluster have different hash tags.
func (s *Store) together(names []string) error {
	if s.client.Mode() != rueidis.ClientModeCluster {
		return nil
	}
	for _, name := range names[1:] {
		if hashTag(name) != hashTag(names[0]) {
			return fmt.Errorf("%w (%s and %s)", ErrCrossSlot, shown(names[0]), shown(name))
		}
	}
	return nil
}
