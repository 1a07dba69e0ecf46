package replay

import (
	"github.com/ral-limiter/ral/cmd/ral/internal/traffic"
	"github.com/ral-limiter/ral/policy"
)

const (
	maxLimits = 8
	// maxHeld bounds the requests in the window, and the events of each scenario.
	maxHeld = 1 << 20
	// maxScenarios counts AtLeast and AtMost, and not SpreadEvenly, which excludes them.
	maxScenarios = 5
)

// ledger has the keys with their words and counts. Keys are numbers, from 0.
type ledger struct {
	keys     traffic.Keys
	zero     int64 // Unix nanoseconds of the instant 1
	stride   int   // words of a key
	words    []uint64
	accounts []account
}

// account has the counts of a key.
type account struct {
	requests, wasRefused, newly, lifted uint32
	refused                             [maxScenarios]uint32
}

// grow makes room for all keys that have a number.
func (l *ledger) grow() {
	if n := l.keys.Size(); n > len(l.accounts) {
		l.accounts = append(l.accounts, make([]account, n-len(l.accounts))...)
		l.words = append(l.words, make([]uint64, n*l.stride-len(l.words))...)
	}
}

// instant returns a policy's instant for Unix nanoseconds.
func (l *ledger) instant(unix int64) policy.Instant { return policy.Instant(max(unix-l.zero, 0) + 1) }
