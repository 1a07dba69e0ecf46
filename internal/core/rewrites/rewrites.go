// Package rewrites follows the units in use of a take through changes of policy, which rewrite words.
package rewrites

import "github.com/ral-limiter/ral/policy"

// Log holds the latest changes that rewrote words of a policy.Occupier, oldest first. A Log is
// immutable. The zero Log holds no change.
type Log []rewrite

type rewrite struct {
	// epoch is the epoch of the policy from the change on.
	epoch  uint64
	since  policy.Instant
	before policy.Policy
	to     policy.Relative
}

// maxChanges bounds the changes for which units in use are followed.
const maxChanges = 64

// Add returns the log with one change more, to the policy of that epoch at the instant since. A change that
// leaves words as they are is not added.
func (l Log) Add(epoch uint64, since policy.Instant, before policy.Policy, to policy.Relative) Log {
	if to.Reads(before) {
		return l
	}
	l = l[max(0, len(l)-maxChanges+1):]
	return append(l[:len(l):len(l)], rewrite{epoch, since, before, to})
}

// Carried translates the word that a take left under the policy of that epoch, as the key's word has been
// translated since. Carried returns 0 if the take's units no longer count, or if that is uncertain.
func (l Log) Carried(word, epoch uint64) uint64 {
	if len(l) == maxChanges && epoch < l[0].epoch-1 {
		return 0
	}
	for i, first := 0, true; i < len(l) && word != 0; i++ {
		rewrite := &l[i]
		if rewrite.epoch <= epoch {
			continue
		}
		if first {
			word, first = alone(rewrite.before, word), false
		}
		word, _ = rewrite.to.Carry(rewrite.before, word, rewrite.since)
	}
	return word
}

// alone returns a word for a take that has a unit of that take and no other. A change may carry
// fewer units in finer parts, and the key's word has fewer than the take's after other releases.
func alone(limit policy.Policy, word uint64) uint64 {
	if l, ok := limit.(interface{ Alone(word uint64) uint64 }); ok {
		return l.Alone(word)
	}
	return word
}
