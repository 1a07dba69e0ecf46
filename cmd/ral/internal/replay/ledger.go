package replay

import (
	"github.com/ral-limiter/ral/cmd/ral/internal/traffic"
	"github.com/ral-limiter/ral/policy"
)

const (
	maxLimits = 8
	// maxHeld bounds the requests in the window, and the events of each scenario.
	maxHeld = 1 << 20
)

// ledger has the keys with their words and counts. Keys are numbers, from 0.
type ledger struct {
	keys     traffic.Keys
	zero     int64 // Unix nanoseconds of the instant 1
	stride   int   // words of a key
	words    []uint64
	columns  int      // counts of a key
	counts   []uint32 // a key's refusals in each scenario, or its need
	accounts []account
}

// account has the counts of a key that do not depend on a scenario.
type account struct {
	requests, wasRefused, newly, lifted uint32
	plan                                uint8
	// isLoaded reports whether a state has the key.
	isLoaded bool

	// Of a record: the units that all give-backs returned, the resets, and the end of a block in Unix nanoseconds.
	returned     int64
	resets       int64
	blockedUntil int64
}

// grow makes room for all keys that have a number.
func (l *ledger) grow() {
	if n := l.keys.Size(); n > len(l.accounts) {
		l.accounts = append(l.accounts, make([]account, n-len(l.accounts))...)
		l.words = append(l.words, make([]uint64, n*l.stride-len(l.words))...)
		l.counts = append(l.counts, make([]uint32, n*l.columns-len(l.counts))...)
	}
}

// countsOf returns the counts of a key, by scenario.
func (l *ledger) countsOf(key uint32) []uint32 {
	i := int(key) * l.columns
	return l.counts[i : i+l.columns]
}

// instant returns a policy's instant for Unix nanoseconds.
func (l *ledger) instant(unix int64) policy.Instant { return policy.Instant(max(unix-l.zero, 0) + 1) }
