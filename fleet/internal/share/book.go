package share

import (
	"sync"

	"github.com/ral-limiter/ral/policy"
)

// book holds how much of what keys have used of a share was charged: for each a word of
// the share's own policy, which drains as the share's does. A word that means nothing any
// more is forgotten. Its methods may be called by any number of goroutines; at belongs to
// the one that charges.
type book struct {
	at   policy.Instant // at which the key was looked at that is charged now
	most int

	mu    sync.Mutex
	part  policy.Policy
	words map[string]uint64
}

// tidied words are looked at in turn each time, so that it never takes long.
const tidied = 4096

func newBook(part policy.Policy, most int) book {
	return book{part: part, most: most, words: map[string]uint64{}}
}

// stands tells how a key would stand that has used of the share what was charged, and no
// more.
func (b *book) stands(key string) policy.Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, d := b.part.Take(b.words[key], b.at, 0, 0)
	return d
}

// room tells whether it can be noted that the key is charged.
func (b *book) room(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, there := b.words[key]
	return there || len(b.words) < b.most
}

// add notes that n units of a key were charged.
func (b *book) add(key string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.words[key] = b.part.(policy.Refunder).Refund(b.words[key], b.at, -n)
}

// drop forgets a key.
func (b *book) drop(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.words, key)
}

// divide translates all words into those of another share.
func (b *book) divide(part policy.Policy, now policy.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, word := range b.words {
		word, ok := part.(policy.Relative).Carry(b.part, word, now)
		if ok {
			b.words[key] = word
		} else {
			delete(b.words, key)
		}
	}
	b.part = part
}

// tidy forgets words that mean nothing any more: some, and all if there is no room.
func (b *book) tidy(now policy.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := tidied
	if len(b.words) >= b.most {
		left = len(b.words)
	}
	for key, word := range b.words { // which begins anywhere
		if left--; left < 0 {
			return
		}
		if b.part.FreshAt(word) <= now {
			delete(b.words, key)
		}
	}
}
