package configured

import (
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
)

const (
	// parts is how many parts the keys of a change are divided into, so that calls on different
	// keys seldom wait for each other.
	parts = 256
	// keysPerTurn is after how many keys a change lets other goroutines run.
	keysPerTurn = 256
)

// change translates the words of a limit's keys when its figures change. Each word is translated
// once: by the first call on its key, or by the change itself.
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

// translate makes what the key has used under the old limit count under the new one, unless that
// has been done.
func (c *change) translate(key string) {
	p := &c.parts[maphash.String(c.seed, key)%parts]
	p.Lock()
	defer p.Unlock()
	if _, ok := p.done[key]; ok {
		return
	}
	// Both limits are of the engine's family. A closed engine has no further calls.
	_ = c.to.family.ChangeLimit(key, c.from.policy, c.to.policy)
	if p.done == nil {
		p.done = map[string]struct{}{}
	}
	p.done[key] = struct{}{}
}

// all translates the words of all keys. Calls under the new limit go on meanwhile; there are none
// under the old one.
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
