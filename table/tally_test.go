package table

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A tally is a policy that admits everything, for tests of changes. Its words record the tally's
// id, the units taken, and when the key is fresh, an hour after the last take. The tally panics on
// a word of another tally. Carry keeps the count, so that lost or doubled units show.
type tally struct{ id uint64 }

const (
	// The number of the tally begins at bit tallyID.
	tallyID    = 56
	tallyCount = 32
)

func (p tally) own(word uint64) uint64 {
	if word != 0 && word>>tallyID != p.id {
		panic(fmt.Sprintf("tally %d was given a word of tally %d: %#x", p.id, word>>tallyID, word))
	}
	return word
}

func tallied(word uint64) uint64 {
	return word &^ epochBit >> tallyCount & (1<<(tallyID-tallyCount) - 1)
}

func (p tally) Take(
	word uint64, now policy.Instant, n int64, _ time.Duration,
) (uint64, policy.Decision) {
	p.own(word)
	fresh := max(uint64((now+hour+second-1)/second), word&(1<<tallyCount-1))
	return p.id<<tallyID | (tallied(word)+uint64(n))<<tallyCount | fresh,
		policy.Decision{Allowed: true, Limit: 1 << 20}
}

func (p tally) Limit() int64 { return 1 << 20 }

func (p tally) Delays() bool { return false }

func (p tally) FreshAt(word uint64) policy.Instant {
	return policy.Instant(p.own(word)&(1<<tallyCount-1)) * second
}

func (p tally) String() string { return fmt.Sprintf("tally %d", p.id) }

func (p tally) Reads(policy.Policy) bool { return false }

func (p tally) Carry(from policy.Policy, word uint64, _ policy.Instant) (uint64, bool) {
	other, ok := from.(tally)
	if !ok {
		return 0, false
	}
	if other.own(word) != 0 {
		word += (p.id - other.id) << tallyID
	}
	return word, true
}
