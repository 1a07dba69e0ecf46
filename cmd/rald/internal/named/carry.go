package named

import (
	"context"
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	// parts is how many parts the keys of a change are divided into, so that calls on different
	// keys seldom wait for each other.
	parts = 256
	// keysPerTurn is after how many keys a change lets other goroutines run.
	keysPerTurn = 256
	// mostTries bounds how often a change tries again to make room for keys, and retry is the
	// pause in between. A table that is full makes room within milliseconds.
	mostTries = 200
	retry     = 5 * time.Millisecond
)

// carrying is the way of keys from one limit to another. Each key is carried once: by the first
// call that comes to it, or by the change itself.
type carrying struct {
	from, to *limit
	// again is set if an earlier process may have carried some keys. A key that owes under the
	// new limit is one of them.
	again bool

	seed  maphash.Seed
	parts [parts]struct {
		sync.Mutex
		moved map[string]struct{}
	}
}

func newCarrying(from, to *limit) *carrying {
	return &carrying{from: from, to: to, seed: maphash.MakeSeed()}
}

// inPlace reports whether both limits read the words of one engine.
func (c *carrying) inPlace() bool { return c.from.space == c.to.space }

// move carries a key, unless that has been done. It reports false if there was no room for it.
func (c *carrying) move(key string) bool {
	p := &c.parts[maphash.String(c.seed, key)%parts]
	p.Lock()
	defer p.Unlock()
	if _, ok := p.moved[key]; ok {
		return true
	}
	if !c.carry(key) {
		return false
	}
	if p.moved == nil {
		p.moved = map[string]struct{}{}
	}
	p.moved[key] = struct{}{}
	return true
}

// carry makes what the key has used under the old limit count under the new one. Its state
// under the old one stays, unless the two share an engine: if the process is killed, the state
// that was saved last is that one.
func (c *carrying) carry(key string) bool {
	ctx := context.Background()
	if c.inPlace() {
		return c.to.space.ChangeLimit(key, c.from.policy, c.to.policy) == nil
	}
	used, err := c.from.space.TakeWith(ctx, c.from.policy, key, 0)
	if err != nil {
		return false
	}
	n := owed(c.from.policy, c.to.policy, used)
	if n == 0 {
		return true
	}
	if c.again {
		if has, err := c.to.space.TakeWith(ctx, c.to.policy, key, 0); err != nil || has.ResetAfter > 0 {
			return err == nil
		}
	}
	d, err := c.to.space.RefundWith(ctx, c.to.policy, key, -n)
	return err == nil && d.Allowed
}

// all carries all keys. Calls under the new limit go on meanwhile; there are none under the old
// one.
func (c *carrying) all() {
	tries, n := 0, 0
	for key := range c.from.space.Keys() {
		if !strings.HasPrefix(key, c.from.prefix) {
			continue
		}
		for !c.move(key) && tries < mostTries {
			tries++
			time.Sleep(retry)
		}
		if n++; n%keysPerTurn == 0 {
			runtime.Gosched()
		}
	}
}

// forget forgets the keys under the old limit, which have been carried to another engine.
func (c *carrying) forget() {
	for key := range c.from.space.Keys() {
		if strings.HasPrefix(key, c.from.prefix) {
			_, _ = c.from.space.Reset(context.Background(), key)
		}
	}
}
