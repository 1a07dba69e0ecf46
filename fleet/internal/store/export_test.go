package store

import (
	"context"
	"time"
)

const LastBlock = int64(lastBlock)

func (s *Store) BlockName(l *Limit, name string) string { return l.blockName(name) }

// BlockWord returns the word of a key's block.
func (s *Store) BlockWord(ctx context.Context, l *Limit, key string) (uint64, error) {
	name, err := nameIn(l.blocks, key)
	if err != nil {
		return 0, err
	}
	reply, err := s.client.Do(ctx, s.client.B().Get().Key(name).Build()).ToMessage()
	if reply.IsNil() {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return parseBlock(reply, name)
}

func SlotOf(name string) int { return slot(hashTag(name)) }

func (s *Store) Name(l *Limit, key string) (string, error) { return nameIn(l.prefix, key) }

// Corrupt makes the limit's scripts reply word, time and taken as given.
func (s *Store) Corrupt(l *Limit, reply string) {
	l.lease, l.back = s.newScript("return "+reply), s.newScript("return "+reply)
	l.take = s.newScript("local r = "+reply+"\n", "if type(r) == 'table' then r = {r[2], r[1], r[3]} end\n", "return r\n")
}

// Take takes n units of the key, or none, in a call of Redis. See policy.Policy.Take.
func (s *Store) Take(ctx context.Context, l *Limit, key string, n int64, patience time.Duration) (Taken, error) {
	return s.TakeOne(ctx, TakeAsk{Limit: l, Key: key, N: n, Patience: patience})
}

// Peek returns the key's state.
func (s *Store) Peek(ctx context.Context, l *Limit, key string) (Taken, error) {
	return s.Take(ctx, l, key, 0, 0)
}

// Cancel is Keep of no units.
func (s *Store) Cancel(ctx context.Context, l *Limit, key string, t Taken, n int64) (Taken, error) {
	return s.Keep(ctx, l, key, t, n, 0)
}
