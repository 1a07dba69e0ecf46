package families

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// A Ledger has parts, so that calls on different keys seldom wait.
const parts = 256

// Ledger records under which limit each word of an engine counts while limits change. The word of a
// noted key counts under the limit of the key's last Carry. Any other word counts under the limit
// that the owner knows. A saved state tells the limit of each noted key, so a restart goes on with
// the change.
type Ledger struct {
	engine *engine.Engine[string]
	seed   maphash.Seed
	parts  [parts]part
	// texts has the limits of noted keys in a saved state, by their text.
	texts map[string]policy.Policy
}

type part struct {
	// The lock is held while a word is translated, and by saves.
	sync.Mutex
	noted map[string]policy.Policy
}

func (p *part) note(key string, limit policy.Policy) {
	if p.noted == nil {
		p.noted = map[string]policy.Policy{}
	}
	p.noted[key] = limit
}

func newLedger() *Ledger {
	return &Ledger{seed: maphash.MakeSeed(), texts: map[string]policy.Policy{}}
}

func (l *Ledger) part(key string) *part { return &l.parts[maphash.String(l.seed, key)%parts] }

// Carry makes the key's usage count under the limit to, and notes that. It translates the word from
// the noted limit, or from the given one if none is noted, unless both are equal. Both must be of
// the engine's family. If engine.Engine.ChangeLimit fails, Carry returns its error and has changed nothing.
func (l *Ledger) Carry(key string, from, to policy.Policy) error {
	part := l.part(key)
	part.Lock()
	defer part.Unlock()
	noted, ok := part.noted[key]
	if noted == to {
		return nil
	}
	isEqual := from == to
	if ok {
		from, isEqual = noted, noted.String() == to.String()
	}
	if !isEqual {
		if err := l.engine.ChangeLimit(key, from, to); err != nil {
			return err
		}
	}
	part.note(key, to)
	return nil
}

// Each calls do with each noted key.
func (l *Ledger) Each(do func(key string)) {
	for i := range l.parts {
		part := &l.parts[i]
		part.Lock()
		for key := range part.noted {
			do(key)
		}
		part.Unlock()
	}
}

// Clear forgets all notes: the owner knows the limits of all words.
func (l *Ledger) Clear() {
	for i := range l.parts {
		part := &l.parts[i]
		part.Lock()
		part.noted = nil
		part.Unlock()
	}
}

// A noted key's bytes are noteMark, the text of its limit, a zero byte and the key. The bytes of
// any other key are the key, preceded by noteMark and a zero byte if the key begins with noteMark.
const noteMark = "\x00\x01"

// encode and decode are for engine.KeyCodec.
func (l *Ledger) encode(dst []byte, key string) ([]byte, error) {
	part := l.part(key)
	part.Lock()
	limit, ok := part.noted[key]
	part.Unlock()
	if ok || strings.HasPrefix(key, noteMark) {
		dst = append(dst, noteMark...)
		if ok {
			dst = append(dst, limit.String()...)
		}
		dst = append(dst, 0)
	}
	return append(dst, key...), nil
}

func (l *Ledger) decode(src []byte) (key string, err error) {
	rest, isMarked := strings.CutPrefix(string(src), noteMark)
	if !isMarked {
		return rest, nil
	}
	text, key, _ := strings.Cut(rest, "\x00")
	if text == "" {
		return key, nil
	}
	limit, ok := l.texts[text]
	if !ok {
		if limit, err = policy.Parse(text); err != nil {
			return "", err
		}
		l.texts[text] = limit
	}
	l.part(key).note(key, limit)
	return key, nil
}
