package cell

import "github.com/ral-limiter/ral/policy"

// choice is the limit of a call.
type choice struct {
	// limit is the call's, or chosen for its key. Nil means the cell's own.
	limit policy.Policy
	// switched is Cell.switched before PolicyFor chose limit. It is nil for any other limit.
	switched *switching
}

// switching is a change of a key's limit and its word in one step, or none.
//
// A call reads switched, chooses a limit, reads the word, and reads switched again before it swaps the
// word. A change replaces switched, then the word, and then the choice. So a call that chose the earlier
// limit either took before the change read the word, or fails to swap the replaced word. A call for a new
// key chooses again once its entry has landed, or the change finds the entry. ChangeLimit therefore
// replaces each word that it finds.
type switching struct {
	// hash is the hash of the key.
	hash uint64
	// over is closed after the change. Nil means that no change is under way.
	over chan struct{}
}
