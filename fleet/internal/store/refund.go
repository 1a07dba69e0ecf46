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

// Refund gives n units back, or for n < 0 charges -n, as policy.Refunder has it, and tells
// how the key stands then. Of a log it gives back the newest, and charges until it holds
// twice the limit. One call of Redis, whatever others do to the key.
func (s *Store) Refund(ctx context.Context, l *Limit, key string, n int64) (Taken, error) {
	return s.change(ctx, l, key, n, take{})
}

// Keep leaves kept of the n units of a take used, and gives back the others. If the present
// word is the word that the take left, it becomes the word of a take of kept units, unless such a
// take would have had its turn earlier. A word comes back after a return only if later takes
// fill to the tick as much as came back, which time that passes between a take and its return
// makes unlikely; then Keep gives back the units of the take as if nothing had come behind it.
// Otherwise units come back from the newest on, as policy.Refunder does if nothing is known of
// what others gave back, and in addition what undrained says. One call of Redis, whatever others do
// to the key.
func (s *Store) Keep(ctx context.Context, l *Limit, key string, t Taken, n, kept int64) (Taken, error) {
	kept = max(kept, 0)
	if n <= kept || t.After == 0 { // nothing was taken, or all is kept
		return s.Peek(ctx, l, key)
	}
	return s.change(ctx, l, key, n-kept, take{t, n})
}

// Cancel is Keep of no unit.
func (s *Store) Cancel(ctx context.Context, l *Limit, key string, t Taken, n int64) (Taken, error) {
	return s.Keep(ctx, l, key, t, n, 0)
}

// take is what units are given back of: a take of n units. The zero take stands for any
// calls.
type take struct {
	Taken
	n int64
}

// replay returns the word that a take of fewer units would have left. ok is false if such a
// take would have had its turn at another time, so that its units might count elsewhere.
func (l *Limit) replay(of take, back int64) (word uint64, ok bool) {
	if back >= of.n {
		return of.Before, true
	}
	word, d := l.policy.Take(of.Before, of.At, of.n-back, math.MaxInt64)
	return word, d.Allowed && d.Wait == of.Wait
}

// change gives back units: those of a take or, if that is zero, of any calls. For back < 0
// it charges -back.
func (s *Store) change(ctx context.Context, l *Limit, key string, back int64, of take) (Taken, error) {
	name, err := s.name(l.prefix, key)
	if err != nil {
		return Taken{}, err
	}
	figures := l.backFigures(back, of)
	return l.understandChange(s.run(ctx, l.back, []string{name}, []string{packed(figures)}), name, back, of)
}

// understandChange tells how a key stands after a change.
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
	did, err := parsePair(reply[3:])
	if err != nil {
		return Taken{}, fmt.Errorf("%w: %w", ErrDisagrees, err)
	}
	if err := l.agrees(name, f, back, of, did); err != nil {
		return Taken{}, err
	}
	t := l.standing(did, f.at)
	t.Before = f.word
	return t, nil
}

// changed is the next word, as the policy has it.
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
	case l.shape.Interval == 0: // what others gave back is not known
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

// undrained returns the tick at which the last units of a take, so many, would have drained if
// the bucket had been empty before it. Until then as much comes back as would drain from now on,
// whatever other calls did, as long as the word lies ahead of now by at most reach ticks.
//
// Compare the word with that of a bucket without the units. It is behind by what they fill. A take
// or a charge puts both off by as much, and what a take gives back is in both. Only while
// the other bucket is empty does it come closer, and then by the time that passes.
// So it stays behind by what they fill less their age, and a word that is brought forward by that
// is not before the other, which has room for all that was taken.
//
// This holds for takes at the instants at which they start. While one is promised a turn, the next
// must not start before it, so that nothing comes back. The bucket of a Funnel holds more than its
// capacity until the last turn, and a Bursty owes more than a unit. In a Queue whatever is behind a
// take starts when that has drained. If a Refund gave back units that had drained, or a Reset those
// of this take, they come back twice.
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

// tick converts an instant as paced policies do.
func (l *Limit) tick(at policy.Instant) uint64 {
	return uint64(min(max(at, 0), policy.Instant(l.shape.End))) << tickBits
}

// mostBack is more than a window can count, except for the longest of an AlignedWindow: see
// mostCounted.
const mostBack = 1 << 53

// backFigures are the parameters of a giver.
func (l *Limit) backFigures(back int64, of take) []float64 {
	if l.log != nil {
		kept := int64(0)
		if of.After != 0 {
			kept, back = of.n-back, of.n
		}
		back = min(max(back, -2*l.limit), 2*l.limit) // all that it can hold
		return append(l.logFigures(0, 0), float64(back), float64(of.After), float64(of.turn()), float64(kept))
	}
	// An impossible word, so that none is put in place of another.
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
	return append(append(undo, pairs(l.ticks(back), drains, reach)...), one[4:]...)
}

// turn tells the window of a word, as the givers of windows do.
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

// ticks is what n units take, or -n, as far as a word goes.
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

// parsePair understands a word that a script replies as a pair.
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

// Delete forgets what is kept of the blocks of a key, and, unless l is nil, what it has used. It
// reports whether there was anything.
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

// relogParams are those of a log, of which n and patience are 0, and what is changed.
var relogParams = newAlgorithm(relogLua, "n, limit, per, patience, count, unit, turn, keep")

func (s *Store) relogScript() *script {
	return s.newScript(
		"local key = KEYS[1]\n", timeLua, relogParams.unpack(),
		"do\n", logLua, "if first < 0 then return {newest[1], us, -1} end\n",
		strings.Replace(relogLua, "RECORD", recordLua, 1), "end\n",
		logLua, "return "+strings.Replace(logReply, ", b}", "}", 1)+"\n")
}
