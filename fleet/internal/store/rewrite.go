package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Rewrite replaces a key's word by Next(word, now).
type Rewrite struct {
	// Tail is the Tail of the key.
	Tail string
	Next func(word uint64, now policy.Instant) uint64
}

// maxRewrites is the most attempts at a word that other calls write meanwhile.
const maxRewrites = 4

// RewriteAll rewrites many words, each once or not at all. It takes two round trips, and two more for each
// further attempt at words that other calls wrote meanwhile. A word that others keep writing stays as it
// is, with ErrContended. If Redis does not answer, the word may have been rewritten or not. Redis rewrites
// a word at most the time within after the now that was passed to Next. RewriteAll returns the first error.
func (s *Store) RewriteAll(ctx context.Context, limit *Limit, all []Rewrite, within time.Duration) (first error) {
	failed := func(err error) {
		if first == nil {
			first = err
		}
	}
	names := make([]string, len(all))
	left := make([]int, 0, len(all))
	for i, rewrite := range all {
		names[i] = limit.prefix + rewrite.Tail
		left = append(left, i)
	}
	if limit.wordless() {
		return &policy.FieldError{Of: "store.RewriteAll", Field: "Limit", Value: limit.policy, Want: "a limit that has words"}
	}
	for range maxRewrites {
		reads := make([]call, len(left))
		for i, index := range left {
			reads[i] = call{index, s.scripts.read, names[index : index+1], nil}
		}
		var swaps []call
		for i, res := range s.run(ctx, reads) {
			index := reads[i].index
			found, err := read(res, names[index], 3).found(limit)
			if err != nil {
				failed(err)
				continue
			}
			if next := all[index].Next(found.word, found.now); next != found.word {
				latest := strconv.FormatInt((int64(found.now)+int64(within))/1000, 10)
				swaps = append(swaps, call{index, s.scripts.soon, names[index : index+1], append(limit.swapArgs(found.word, next, found.now), latest)})
			}
		}
		left = left[:0]
		for i, res := range s.run(ctx, swaps) {
			switch did, err := res.AsInt64(); {
			case err != nil:
				failed(classify(err, swaps[i].keys[0]))
			case did != 1:
				left = append(left, swaps[i].index)
			}
		}
		if len(left) == 0 {
			return first
		}
	}
	failed(fmt.Errorf("%w (%s and %d others)", ErrContended, shown(names[left[0]]), len(left)-1))
	return first
}

// swapArgs returns the script's arguments to replace word by next.
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
	return []string{text(word), text(next), strconv.FormatInt(ends(fresh), 10)}
}
