package admission

import (
	"reflect"
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// words returns the texts of policies, and caches the last text. It is safe for concurrent use.
type words struct {
	last atomic.Pointer[wording]
}

// wording is a policy and its text.
type wording struct {
	// policy has a comparable value.
	policy policy.Policy
	text   string
}

// text returns limit.String(), or "" if limit is nil.
func (w *words) text(limit policy.Policy) string {
	if limit == nil {
		return ""
	}
	// Policies of the same type as a comparable policy may be compared with it.
	if last := w.last.Load(); last != nil && last.policy == limit {
		return last.text
	}
	text := limit.String()
	if reflect.ValueOf(limit).Comparable() {
		w.last.Store(&wording{limit, text})
	}
	return text
}
