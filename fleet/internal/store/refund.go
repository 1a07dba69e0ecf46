package store

import (
	"context"
	"strings"

	"github.com/redis/rueidis"
)

// Refund gives n units back, or charges -n for n < 0, like policy.Refunder, and returns the key's
// state, in an atomic call of Redis. A SlidingLog gives its newest units back, and is charged at most
// twice the limit.
func (s *Store) Refund(ctx context.Context, limit *Limit, key string, n int64) (Taken, error) {
	return s.change(ctx, limit, key, n, take{})
}

// Keep leaves kept of the n units of a take used, and gives the other units back, in an atomic call of
// Redis. There are three cases.
//
// If the log beside the word has the take, the word becomes as if the take had been of kept units: the
// script makes the later changes again (see lua/note.lua). Otherwise, if the word is still the word that
// the take left, it becomes the word of a take of kept units, unless that take would have had an earlier
// turn. The same word may also have come about by later takes that fill exactly the returned ticks, which
// is unlikely while time passes. Keep then returns the units as if no take had followed.
//
// In all other cases the newest units come back, like policy.Refunder without knowledge of other
// returns, and also the units of undrained.
func (s *Store) Keep(ctx context.Context, limit *Limit, key string, taken Taken, n, kept int64) (Taken, error) {
	kept = max(kept, 0)
	// Nothing was taken, or all units are kept.
	if n <= kept || taken.After == 0 {
		return s.TakeOne(ctx, TakeAsk{Limit: limit, Key: key})
	}
	return s.change(ctx, limit, key, n-kept, take{taken, n})
}

// change gives back units of the take undo, or of any calls if undo is zero. If back is below 0, change charges -back.
func (s *Store) change(ctx context.Context, limit *Limit, key string, back int64, undo take) (Taken, error) {
	name, err := nameIn(limit.prefix, key)
	if err != nil {
		return Taken{}, err
	}
	figures := limit.backFigures(back, undo)
	return limit.understandChange(s.runOne(ctx, limit.back, limit.backNames(name), packed(figures)), name, back, undo)
}

func (l *Limit) understandChange(res rueidis.RedisResult, name string, back int64, undo take) (Taken, error) {
	answer := read(res, name, 3, 6, 7)
	if l.log != nil {
		found := l.readSet(answer)
		return l.decideLog(found, 0, 0), answer.err
	}
	word, us, _ := answer.word()
	did, again := answer.expect(3).pair(), answer.number()
	if answer.err != nil {
		return Taken{}, answer.err
	}
	f := found{word: word, now: instant(us)}
	if err := l.agrees(name, f, back, undo, did, again == 1); err != nil {
		return Taken{}, err
	}
	t := l.standing(did, f.now)
	t.Before, t.Exact = f.word, again == 1 || undo.After != 0 && undo.After == f.word
	return t, nil
}

// backScript returns the script that gives units of a word back or charges them. It replies the old word, the
// time, 0, the next word as a pair, and 1 if it made the later takes again. If the value is no word, it
// replies like the script read.
func (s *Store) backScript(algorithm algorithm, notes bool) *script {
	body, again, function := algorithm.body, "", ""
	if notes {
		body, again, function = body+lua("backnote"), lua("again"), noteLua
	}
	return s.newScript(function, "local key = KEYS[1]\n", timeLua, algorithm.unpack(), strings.NewReplacer(
		"READ", readLua, "AGAIN", again, "BODY", body, "WRITE", writeLua,
	).Replace(lua("back")))
}

// relogParams are the parameters of a SlidingLog and of a change.
var relogParams = newAlgorithm(lua("relog"), "n, limit, per, patience, count, unit, turn, keep")

func (s *Store) relogScript() *script {
	return s.newScript(
		"local key = KEYS[1]\n", timeLua, relogParams.unpack(),
		"do\n", logLua, "if first < 0 then return {newest[1], us, -1} end\n",
		strings.Replace(lua("relog"), "RECORD", recordLua, 1), "end\n",
		logLua, "return "+strings.Replace(logReply, ", b}", "}", 1)+"\n")
}
