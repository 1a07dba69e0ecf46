package store

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

//go:embed lua/swap.lua
var swapLua string

//go:embed lua/relog.lua
var relogLua string

// mostSwaps is how often a word is read and rewritten before a call gives up.
const mostSwaps = 64

// Update puts change(word, now) in place of a key's word, whatever the limit allows, and
// tells how the key stands then. change is called again if somebody else wrote the word
// meanwhile. It is not for logs.
func (s *Store) Update(ctx context.Context, l *Limit, key string, change func(word uint64, now policy.Instant) uint64) (Taken, error) {
	name, err := s.name(l.prefix, key)
	if err != nil {
		return Taken{}, err
	}
	if l.log != nil {
		return Taken{}, &policy.FieldError{Of: "store.Update", Field: "Limit", Value: l.policy, Want: "a limit that has words"}
	}
	for range mostSwaps {
		word, now, err := s.read(ctx, name)
		if err != nil {
			return Taken{}, err
		}
		next := change(word, now)
		done := next == word
		if !done {
			if done, err = s.swap(ctx, l, name, word, next, now); err != nil {
				return Taken{}, err
			}
		}
		if done {
			_, d := l.policy.Take(next, now, 0, 0)
			return Taken{Decision: d, Before: word, After: next, At: now}, nil
		}
	}
	return Taken{}, fmt.Errorf("%w (%s)", ErrContended, shown(name))
}

// swap puts the word next in place of word if that is still there, and tells whether.
// One that means nothing any more is not kept.
func (s *Store) swap(ctx context.Context, l *Limit, name string, word, next uint64, now policy.Instant) (bool, error) {
	swapped, err := s.run(ctx, s.scripts.swap, []string{name}, l.swapArgs(word, next, now)).AsInt64()
	if err != nil {
		return false, explain(err, name)
	}
	return swapped == 1, nil
}

// swapArgs are what the script is told.
func (l *Limit) swapArgs(word, next uint64, now policy.Instant) []string {
	text := func(word uint64) string {
		if word == 0 {
			return ""
		}
		return strconv.FormatUint(word, 10)
	}
	fresh := l.policy.FreshAt(next)
	if fresh <= now {
		next = 0
	}
	const ms = policy.Instant(time.Millisecond)
	expiry := fresh / ms
	if fresh%ms > 0 {
		expiry++
	}
	return []string{text(word), text(next), strconv.FormatInt(int64(expiry), 10)}
}

// Refund gives n units back, or for n < 0 charges -n, as policy.Refunder has it. Of a
// log it gives back the newest, and charges until it holds twice the limit.
func (s *Store) Refund(ctx context.Context, l *Limit, key string, n int64) (Taken, error) {
	if l.log != nil {
		return s.changeLog(ctx, l, key, n, Taken{})
	}
	return s.Update(ctx, l, key, func(word uint64, now policy.Instant) uint64 {
		return l.policy.(policy.Refunder).Refund(word, now, n)
	})
}

// Cancel undoes a take of n units, as policy.Refunder has it, where undone is explained;
// math.MaxInt64 is not known. The word from before is put back if the present one is
// what the take left, which by a clock that goes on does not come about by chance.
func (s *Store) Cancel(ctx context.Context, l *Limit, key string, t Taken, n, undone int64) (Taken, error) {
	if l.log != nil {
		if n <= 0 || t.After == 0 { // nothing was taken
			return s.Peek(ctx, l, key)
		}
		return s.changeLog(ctx, l, key, n, t)
	}
	return s.Update(ctx, l, key, func(word uint64, now policy.Instant) uint64 {
		if word == t.After && (undone == 0 || undone == math.MaxInt64) {
			return t.Before
		}
		return l.policy.(policy.Refunder).Cancel(word, t.After, t.At, now, n, undone)
	})
}

// Delete forgets what a key has used, and tells whether there was anything.
func (s *Store) Delete(ctx context.Context, l *Limit, key string) (bool, error) {
	name, err := s.name(l.prefix, key)
	if err != nil {
		return false, err
	}
	n, err := s.client.Do(ctx, s.client.B().Del().Key(name).Build()).AsInt64()
	if err != nil {
		return false, explain(err, name)
	}
	return n > 0, nil
}

// relogParams are those of a log, of which n and patience are 0, and what is changed.
var relogParams = newAlgorithm(relogLua, "n, limit, per, patience, count, unit, turn")

func (s *Store) relogScript() *script {
	return s.newScript(
		"local key = KEYS[1]\n", timeLua, relogParams.unpack(),
		"do\n", logLua, "if first < 0 then return {newest[1], us, -1} end\n",
		strings.Replace(relogLua, "RECORD", recordLua, 1), "end\n",
		logLua, "return "+logReply+"\n")
}

// changeLog gives back n units of a log, those of a take or, if it took none, the newest;
// or charges -n.
func (s *Store) changeLog(ctx context.Context, l *Limit, key string, n int64, of Taken) (Taken, error) {
	name, err := s.name(l.prefix, key)
	if err != nil {
		return Taken{}, err
	}
	n = min(max(n, -2*l.limit), 2*l.limit) // all that a log can hold
	figures := append(l.logFigures(0, 0), float64(n), float64(of.After), float64(of.turn()))
	reply, err := s.run(ctx, s.scripts.relog, []string{name}, []string{packed(figures)}).ToArray()
	if err != nil {
		return Taken{}, explain(err, name)
	}
	f, err := parseLog(reply, name)
	if err != nil {
		return Taken{}, err
	}
	return l.decideLog(f, 0, 0), nil
}
