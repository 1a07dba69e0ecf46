package lease

import (
	"container/list"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/policy"
)

// question is an account to ask the bank for, and its whole key.
type question struct {
	*account
	key string
}

// account is the state of a key, except its word. Leases.mu guards it.
type account struct {
	plan.Account
	// name is the key's name: see Config.Name.
	name string
	// calls wait for the bank's answer.
	calls []*call
	// pending means that the account is in the channel, or that the bank has not answered yet.
	pending bool

	touched time.Time
	place   *list.Element
}

type call struct {
	n int64
	// answer has one slot.
	answer chan answer
	// gone is set once the caller stopped waiting. Leases.mu guards it.
	gone bool
}

type answer struct {
	policy.Decision
	err error
}

// book has the accounts in order of their last touch, the oldest first. Leases.mu guards it.
type book struct {
	accounts    map[string]*account
	order       *list.List
	maxAccounts int
}

// open returns the account of a name, and makes it if needed. It returns nil if there is no room,
// and old if another account had to go.
func (b *book) open(name string, now time.Time) (a, old *account) {
	if a = b.accounts[name]; a != nil {
		return a, nil
	}
	if len(b.accounts) >= b.maxAccounts {
		if old = b.first(); old.busy() {
			return nil, nil
		}
		b.remove(old)
	}
	a = &account{Account: plan.NewAccount(now), name: name}
	a.place = b.order.PushBack(a)
	a.touched = now
	b.accounts[name] = a
	return a, old
}

// reply answers the waiting calls for which decide returns true. The others go on waiting.
func (a *account) reply(decide func(n int64) (answer, bool)) {
	rest := a.calls[:0]
	for _, call := range a.calls {
		if call.gone {
			continue
		}
		if answer, ok := decide(call.n); !ok {
			rest = append(rest, call)
		} else {
			call.gone = true
			// The channel has a free slot, since a call gets only one answer.
			call.answer <- answer
		}
	}
	clear(a.calls[len(rest):])
	a.calls = rest
}

func (a *account) busy() bool { return a.pending || len(a.calls) > 0 }

func (b *book) first() *account {
	if front := b.order.Front(); front != nil {
		return front.Value.(*account)
	}
	return nil
}

func (b *book) touch(account *account, now time.Time) {
	account.touched = now
	b.order.MoveToBack(account.place)
}

func (b *book) remove(account *account) {
	b.order.Remove(account.place)
	delete(b.accounts, account.name)
}
