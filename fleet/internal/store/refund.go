package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

//go:embed lua/relog.lua
var relogLua string

// Refund gives n units back, or charges -n for n < 0, like policy.Refunder, and returns the key's
// state, in an atomic call of Redis. A log returns its newest units, and is charged up to twice the
// limit.
func (s *Store) Refund(ctx context.Context, l *Limit, key string, n int64) (Taken, error) {
	return s.change(ctx, l, key, n, take{})
}

// Keep leaves kept of the n units of a take used, and gives the others back, in an atomic call of
// Redis. If the take is noted beside the word, it is as if it had been of kept units: the later
// changes are made again (see noteLua). If the word is still the word that the take left, it
// becomes the word of a take of kept units, unless that take would have had an earlier turn. A word recurs only if later takes fill
// exactly the returned ticks; time that passes makes that unlikely. Then Keep returns the units as
// if nothing had followed. Otherwise the newest units come back, like policy.Refunder without
// knowledge of other returns, plus the units of undrained.
func (s *Store) Keep(ctx context.Context, l *Limit, key string, t Taken, n, kept int64) (Taken, error) {
	kept = max(kept, 0)
	if n <= kept || t.After == 0 { // nothing was taken, or all is kept
		return s.Peek(ctx, l, key)
	}
	return s.change(ctx, l, key, n-kept, take{t, n})
}

// Cancel is Keep of no units.
func (s *Store) Cancel(ctx context.Context, l *Limit, key string, t Taken, n int64) (Taken, error) {
	return s.Keep(ctx, l, key, t, n, 0)
}

// take is a take of n units, to be given back in whole or part. The zero take stands for any calls.
type take struct {
	Taken
	n int64
}

// replay returns the word after a take of fewer units. ok is false if that take would have had
// another turn, where its units might count elsewhere.
func (l *Limit) replay(of take, back int64) (word uint64, ok bool) {
	word, ok = of.Before, true
	if back < of.n {
		var d policy.Decision
		word, d = l.policy.Take(of.Before, of.At, of.n-back, math.MaxInt64)
		ok = d.Allowed && d.Wait == of.Wait
	}
	if r, can := l.policy.(policy.Restorer); can && of.Wait == 0 { // its window has opened
		word = r.Restore(of.After, word, of.At)
	}
	return word, ok
}

// change gives back units of a take or, if it is zero, of any calls. For back < 0 it charges -back.
func (s *Store) change(ctx context.Context, l *Limit, key string, back int64, of take) (Taken, error) {
	name, err := s.name(l.prefix, key)
	if err != nil {
		return Taken{}, err
	}
	figures := l.backFigures(back, of)
	return l.understandChange(s.run(ctx, l.back, l.backNames(name), []string{packed(figures)}), name, back, of)
}

func (l *Limit) understandChange(res rueidis.RedisResult, name string, back int64, of take) (Taken, error) {
	reply, err := res.ToArray()
	switch {
	case err != nil:
		return Taken{}, explain(err, name)
	case l.log != nil:
		f, err := l.parseLog(reply, name)
		if err != nil {
			return Taken{}, err
		}
		return l.decideLog(f, 0, 0), nil
	}
	f, err := parseParts(reply[:min(len(reply), 3)], name)
	if err != nil {
		return Taken{}, err
	}
	did, err := parsePair(reply[3:max(len(reply)-1, 3)])
	if err != nil {
		return Taken{}, fmt.Errorf("%w: %w", ErrDisagrees, err)
	}
	again, _ := reply[len(reply)-1].AsInt64()
	if err := l.agrees(name, f, back, of, did, again == 1); err != nil {
		return Taken{}, err
	}
	t := l.standing(did, f.at)
	t.Before = f.word
	return t, nil
}

// changed is the next word by the policy.
func (l *Limit) changed(f found, back int64, of take) uint64 {
	refunder := l.policy.(policy.Refunder)
	switch {
	case of.After == 0:
		return refunder.Refund(f.word, f.at, back)
	case of.After == f.word:
		if word, ok := l.replay(of, back); ok {
			return word
		}
		return refunder.Cancel(f.word, of.After, of.At, f.at, back, 0)
	case l.shape.Interval == 0: // other returns are unknown
		return refunder.Cancel(f.word, of.After, of.At, f.at, back, math.MaxInt64)
	}
	full, from := l.ticks(back), uint64(0)
	drains, reach := l.undrained(back, of)
	if l.shape.Kind == shape.Bursty {
		from = firstTick + l.shape.Depth
	}
	now := l.tick(f.at)
	if f.word > now+reach || drains <= now {
		return f.word
	}
	return f.word - min(full, drains-now, f.word-min(max(now, from), f.word))
}

// undrained returns the tick at which the last back units of a take would have drained, had the
// bucket been empty before it. Until then as much comes back as would drain from now on, whatever
// other calls did, while the word is ahead of now by at most reach ticks.
//
// Compare the word with the word of a bucket without the units, which is lower by their fill. A
// take or a charge raises both equally, and a return lowers both. The distance shrinks only while
// the other bucket is empty, by the time that passes. So it is at least the fill less the age. The
// word lowered by that is not below the other, which has room for all takes.
//
// This holds for takes that start at once. While a call is promised a turn the next must not start
// before it, so nothing comes back. Until the last turn a Funnel holds more than its capacity, and
// a Bursty owes more than a unit. In a Queue calls behind a take start when it has drained. Units
// come back twice if a Refund returned drained units, or a Reset these.
func (l *Limit) undrained(back int64, of take) (drains, reach uint64) {
	switch l.shape.Kind {
	case shape.Funnel:
		reach = l.shape.Depth
	case shape.Bursty:
		reach = l.shape.Depth + l.shape.Interval
	}
	at := l.tick(of.At)
	return min(at+min(l.ticks(back), policy.MaxWord-at), of.After), reach
}

// tick converts an instant like paced policies.
func (l *Limit) tick(at policy.Instant) uint64 {
	return uint64(min(max(at, 0), policy.Instant(l.shape.End))) << tickBits
}

// mostBack exceeds any window's count, except the longest AlignedWindow's: see mostCounted.
const mostBack = 1 << 53

// backFigures are the parameters of a giver.
func (l *Limit) backFigures(back int64, of take) []float64 {
	if l.log != nil {
		kept := int64(0)
		if of.After != 0 {
			kept, back = of.n-back, of.n
		}
		back = min(max(back, -2*l.limit), 2*l.limit) // the most that it can hold
		return append(l.logFigures(0, 0), float64(back), float64(of.After), float64(of.turn()), float64(kept))
	}
	// No word matches -1.
	undo, turn := []float64{-1, 0, 0, 0, 0}, float64(-1)
	paced := l.shape.Interval > 0
	var drains, reach uint64
	if of.After != 0 {
		turn = l.turn(of.After)
		drains, reach = l.undrained(back, of)
		if word, ok := l.replay(of, back); ok {
			undo = append(pairs(of.After, word), float64(ends(l.policy.FreshAt(word))))
		} else if paced {
			undo = append(pairs(of.After), -1, 0, 0) // units of that word come back
		}
	}
	one := l.figures(1, 0)
	if !paced {
		one[0] = float64(min(max(back, -mostBack), mostBack))
		return append(append(undo, one...), turn)
	}
	undo = append(undo, float64(min(max(back, -1), 1)))
	return append(append(append(undo, pairs(l.ticks(back), drains, reach)...), one[4:]...), l.noted(back, of)...)
}

// turn returns the window of a word, like the givers of windows.
func (l *Limit) turn(word uint64) float64 {
	switch l.shape.Kind {
	case shape.SlidingWindow:
		return float64(min(word>>(2*l.shape.Bits), l.shape.Last))
	case shape.AlignedWindow:
		return float64(min(word>>l.shape.Bits, l.shape.Last))
	}
	window := min(word>>(l.shape.Bits+1), l.shape.Last)
	return float64(2*window + word>>l.shape.Bits&1)
}

// ticks returns the fill of |n| units, up to MaxWord.
func (l *Limit) ticks(n int64) uint64 {
	if n < 0 {
		n = -max(n, -math.MaxInt64)
	}
	hi, lo := bits.Mul64(uint64(n), l.shape.Interval)
	if hi > 0 || lo > policy.MaxWord {
		return policy.MaxWord
	}
	return lo
}

func parsePair(reply []rueidis.RedisMessage) (word uint64, err error) {
	if len(reply) != 2 {
		return 0, fmt.Errorf("%d numbers", len(reply))
	}
	h, err := reply[0].AsInt64()
	if err != nil {
		return 0, err
	}
	l, err := reply[1].AsInt64()
	return uint64(h)*1_000_000_000 + uint64(l), err
}

// Delete forgets the blocks of a key and, unless l is nil, its use. It reports whether there was
// anything.
func (s *Store) Delete(ctx context.Context, l *Limit, key string) (bool, error) {
	name, err := s.name(s.blocks, key)
	if err != nil {
		return false, err
	}
	names := []string{name}
	if l != nil {
		names = append(names, l.prefix+name[len(s.blocks):])
	}
	n, err := s.client.Do(ctx, s.client.B().Del().Key(names...).Build()).AsInt64()
	if err != nil {
		return false, explain(err, names[len(names)-1])
	}
	return n > 0, nil
}

// relogParams are a log's parameters and the change.
var relogParams = newAlgorithm(relogLua, "n, limit, per, patience, count, unit, turn, keep")

func (s *Store) relogScript() *script {
	return s.newScript(
		"local key = KEYS[1]\n", timeLua, relogParams.unpack(),
		"do\n", logLua, "if first < 0 then return {newest[1], us, -1} end\n",
		strings.Replace(relogLua, "RECORD", recordLua, 1), "end\n",
		logLua, "return "+strings.Replace(logReply, ", b}", "}", 1)+"\n")
}
