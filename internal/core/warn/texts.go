package warn

import (
	"fmt"
	"hash/maphash"
	"iter"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Texts is a Table of keys that are texts, with hashes and a clock of its own. Call NewTexts to
// make one. A Texts is safe for concurrent use.
type Texts struct {
	begun time.Time
	seed  maphash.Seed
	table Table
}

// NewTexts returns a Texts of no keys.
func NewTexts() *Texts { return &Texts{begun: time.Now(), seed: maphash.MakeSeed()} }

// Fresh iterates over the shares that a call of the key passed, by its decision, and that were not warned of
// since the key was last unused under the limit. limit is what names the limit, such as a pointer: another
// warns anew. The error is the Notice of the share.
func (t *Texts) Fresh(shares Shares, passed Set, limit any, key string, decision *policy.Decision) iter.Seq2[float64, error] {
	return func(yield func(float64, error) bool) {
		now := int64(time.Since(t.begun))
		hash := maphash.Comparable(t.seed, struct {
			limit any
			key   string
		}{limit, key})
		for share := range t.table.Fresh(shares, passed, hash, now, now+int64(decision.ResetAfter)) {
			if !yield(share, Notice(maphash.String(t.seed, key), share, *decision)) {
				return
			}
		}
	}
}

// Notice says for a log that a key, shown by its hash, has passed a share of its limit.
func Notice(hash uint64, share float64, decision policy.Decision) error {
	return fmt.Errorf("key %016x has passed %.4g%% of its limit, %d of %d left", hash, 100*share, decision.Remaining, decision.Limit)
}
