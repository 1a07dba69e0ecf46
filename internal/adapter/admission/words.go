package admission

import (
	"reflect"
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// words describes policies, and caches the last text. It is safe for concurrent use.
type words struct {
	last atomic.Pointer[wording]
}

type wording struct {
	// policy is comparable.
	policy policy.Policy
	text   string
}

// text returns p.String(), or "" if p is nil.
func (w *words) text(p policy.Policy) string {
	if p == nil {
		return ""
	}
	// Policies of the same type as a comparable policy may be compared with it.
	if last := w.last.Load(); last != nil && last.policy == p {
		return last.text
	}
	text := p.String()
	if reflect.ValueOf(p).Comparable() {
		w.last.Store(&wording{p, text})
	}
	return text
}
