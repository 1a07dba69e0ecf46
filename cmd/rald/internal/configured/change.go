package configured

import (
	"context"
	"fmt"
	"runtime"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

// After keysPerTurn keys a change lets other goroutines run.
const keysPerTurn = 256

// translated returns the key, its word translated if the limit changes.
func (l *limit) translated(key string) string {
	if from := l.from.Load(); from != nil {
		// Both limits are of the engine's family. A closed engine has no further calls.
		_ = l.family.(families.InProcess).Ledger().Carry(key, from.Policy, l.Policy)
	}
	return key
}

// finish ends the changes of the limits in force. It translates the words that no call has
// translated, in one walk over each engine's keys. Then it saves the words, and at last the limits.
//
// If it fails, or the context ends, the changes go on: calls translate words, and a saved state
// tells of each key whether its word is translated. The caller holds changing.
func (l *Limits) finish(ctx context.Context) error {
	table, changing := *l.table.Load(), map[families.InProcess]bool{}
	for _, one := range table {
		if one.from.Load() != nil {
			changing[one.family.(families.InProcess)] = true
		}
	}
	if len(changing) == 0 {
		return nil
	}
	for family := range changing {
		if err := l.walk(ctx, family); err != nil {
			return err
		}
	}
	for family := range changing {
		if err := family.Sync(); err != nil {
			return fmt.Errorf("the debts of keys could not be saved: %s: %w", family.Name(), err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.remember(table, true); err != nil {
		return err
	}
	l.settle(table)
	for family := range l.config.Families.All() {
		if here, ok := family.(families.InProcess); ok {
			here.Ledger().Clear()
		}
	}
	l.mixed = nil
	return nil
}

// settle ends translations. No call is under way that translates by a note, so the notes can go.
func (l *Limits) settle(table map[string]*limit) {
	l.calls.Lock()
	defer l.calls.Unlock()
	for _, one := range table {
		one.from.Store(nil)
	}
}

func (l *Limits) walk(ctx context.Context, family families.InProcess) error {
	n := 0
	for key := range family.Engine().All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if one := l.limitOf(key); one != nil && one.family == family {
			one.translated(key)
		}
		if n++; n%keysPerTurn == 0 {
			runtime.Gosched()
		}
	}
	return nil
}
