package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/rounds"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
)

// shareTurns decides which of the tenants' first calls in line borrows next. mu is locked after the tenant's line, and
// after Shares.giving.
type shareTurns[K comparable] struct {
	// lines has a line for each tenant with waiting calls.
	lines *waitline.Lines[K, struct{}]
	// active is the number of tenants whose first call waits for the group.
	active atomic.Int64

	mu      sync.Mutex
	line    rounds.Line[*shareTenant[K]]
	tenants map[K]*shareTenant[K]
	// woken is the tenant that knows that it is next.
	woken *shareTenant[K]
}

// shareTenant is a tenant with waiting calls. shareTurns.mu guards it.
type shareTenant[K comparable] struct {
	rounds.Tenant[*shareTenant[K]]
	tenant K
	calls  int
	first  *shareTurn[K] // waits for the group; or nil
	hidden bool          // its line cannot be found
}

// shareTurn is a call that waits.
type shareTurn[K comparable] struct {
	tenant *shareTenant[K]
	n      int64
}

// join counts a call that is about to wait. simple reports whether it waits for the group, and for nothing else,
// unless its guarantee has room first.
func (t *shareTurns[K]) join(key K, n int64, weight float64, simple bool) *shareTurn[K] {
	_, hashable := t.lines.Hash(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	var tenant *shareTenant[K]
	if hashable {
		tenant = t.tenants[key]
	}
	if tenant == nil {
		tenant = &shareTenant[K]{tenant: key, hidden: !hashable}
		tenant.Key, tenant.Largest = tenant, 1
		if hashable {
			t.tenants[key] = tenant
		}
	}
	tenant.calls++
	tenant.Quantum, tenant.Units = weight, tenant.Units+float64(n)
	if !simple {
		tenant.Largest = 0
	} else if tenant.Largest > 0 {
		tenant.Largest = max(tenant.Largest, float64(n))
	}
	return &shareTurn[K]{tenant, n}
}

// quit ends the wait of a call, and has the next one go on.
func (t *shareTurns[K]) quit(turn *shareTurn[K]) {
	t.mu.Lock()
	tenant := turn.tenant
	tenant.Units -= float64(turn.n)
	if tenant.first == turn {
		t.leave(tenant)
	}
	if tenant.calls--; tenant.calls == 0 && !tenant.hidden {
		delete(t.tenants, tenant.tenant)
	}
	t.mu.Unlock()
	t.wakeNext()
}

func (t *shareTurns[K]) leave(tenant *shareTenant[K]) {
	t.line.Leave(&tenant.Tenant)
	tenant.first = nil
	t.active.Store(int64(t.line.Len()))
}

// serve ends the wait of a tenant's first call, which has borrowed.
func (t *shareTurns[K]) serve(turn *shareTurn[K]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line.Serve(&turn.tenant.Tenant)
	turn.tenant.first = nil
	t.active.Store(int64(t.line.Len()))
}

// ahead returns a lower bound of the units that are served before a call that has joined.
func (t *shareTurns[K]) ahead(turn *shareTurn[K]) (units float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := float64(turn.n)
	if turn.tenant.Largest > 0 {
		units = max(turn.tenant.Units-n, 0)
	}
	return t.line.Ahead(&turn.tenant.Tenant, units, n)
}

// has reports whether a call may borrow now, by the calls that wait. turn is nil if the call does not wait. group
// and ceiling are their answers to the call. If it may not, has answers in group when to try again.
func (t *shareTurns[K]) has(turn *shareTurn[K], group, ceiling *policy.Decision) bool {
	if turn == nil {
		group.RetryAfter = max(group.RetryAfter, 1)
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant := turn.tenant
	if group.RetryAfter == policy.Never || !ceiling.Allowed {
		t.leave(tenant)
		return false
	}
	t.line.Enter(&tenant.Tenant, float64(turn.n))
	tenant.first = turn
	t.active.Store(int64(t.line.Len()))
	if t.line.Next() == &tenant.Tenant {
		t.woken = tenant
		return true
	}
	if t.woken == tenant {
		t.woken = nil
	}
	if tenant.hidden { // no call can wake it
		group.RetryAfter = max(group.RetryAfter, hiddenRetry)
	} else {
		group.RetryAfter = policy.Never
	}
	return false
}

// hiddenRetry is the time between looks of a call that no other call can wake.
const hiddenRetry = time.Millisecond

// wakeNext has the call that is next look again, unless it knows that it is. No line may be locked.
func (t *shareTurns[K]) wakeNext() {
	t.mu.Lock()
	var next *shareTenant[K]
	if first := t.line.Next(); first != nil && first.Key != t.woken {
		next = first.Key
	}
	t.mu.Unlock()
	if next != nil {
		t.lines.Wake(next.tenant)
	}
}

// wake has the calls that wait look again, after units of a tenant came back.
func (t *shareTurns[K]) wake(tenant K) {
	if t.lines.Empty() {
		return
	}
	t.lines.Wake(tenant)
	t.mu.Lock()
	t.woken = nil
	t.mu.Unlock()
	t.wakeNext()
}
