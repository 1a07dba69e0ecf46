package configured

import (
	"context"
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
)

const (
	parts       = 256 // of a change's keys, so that calls on different keys seldom wait
	keysPerTurn = 256 // keys after which a change lets other goroutines run
)

// change translates the words of a changed limit's keys, each once, by the first call or by itself.
type change struct {
	from, to *limit

	seed  maphash.Seed
	parts [parts]struct {
		sync.Mutex
		done map[string]struct{}
	}
}

func newChange(from, to *limit) *change {
	return &change{from: from, to: to, seed: maphash.MakeSeed()}
}

// translate makes the key's usage count under the new limit, unless done already.
func (c *change) translate(key string) {
	p := &c.parts[maphash.String(c.seed, key)%parts]
	p.Lock()
	defer p.Unlock()
	if _, ok := p.done[key]; ok {
		return
	}
	// Both limits are of the engine's family. A closed engine has no further calls.
	_ = c.to.family.ChangeLimit(context.Background(), key, c.from.policy, c.to.policy)
	if p.done == nil {
		p.done = map[string]struct{}{}
	}
	p.done[key] = struct{}{}
}

// all translates the words of all keys while calls go on under the new limit, none under the old.
func (c *change) all() {
	n := 0
	for key := range c.to.family.Keys() {
		if !strings.HasPrefix(key, c.to.prefix) {
			continue
		}
		c.translate(key)
		if n++; n%keysPerTurn == 0 {
			runtime.Gosched()
		}
	}
}
