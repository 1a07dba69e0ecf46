package linear

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

type Verb int

// The verbs. Those from All to Release are the parts of TakeAll on one key.
const (
	Choke Verb = iota
	Take
	Peek
	Refund
	Reserve
	Cancel
	Reset
	All     // TakeAll was allowed: a take that is not told to wait
	Glance  // TakeAll was refused: it has looked
	Grab    // and may have taken
	Release // and given back
	Extend
)

func (v Verb) String() string {
	return [...]string{
		"Choke", "Take", "Peek", "Refund", "Reserve", "Cancel", "Reset", "All", "Glance", "Grab", "Release", "Extend",
	}[v]
}

// Op is a call on a key, and its answer.
type Op struct {
	Key    int
	Client int
	Verb   Verb

	N        int64
	Patience time.Duration
	// ID names the reservation that a Reserve or Grab makes for a Cancel or Release, or 0.
	ID int64

	// Call and Return are the call's places in the order of all events.
	Call, Return int64
	// From and To are the clock before and after the call.
	From, To policy.Instant

	Allowed  bool            // the answer of Choke, Reset and Extend
	Decision policy.Decision // the answer of the others
}

func (o *Op) String() string {
	text := fmt.Sprintf("[%d..%d] at %d..%d client %d: %v(key %d", o.Call, o.Return, o.From, o.To, o.Client, o.Verb, o.Key)
	switch o.Verb {
	case Take, Refund, All, Glance, Grab, Release:
		text += fmt.Sprintf(", %d", o.N)
	case Reserve:
		text += fmt.Sprintf(", %d, %v", o.N, o.Patience)
	}
	if o.ID != 0 {
		text += fmt.Sprintf(", reservation %d", o.ID)
	}
	switch o.Verb {
	case Choke, Reset, Extend:
		return text + fmt.Sprintf(") = %v", o.Allowed)
	case Cancel, Grab, Release:
		return text + ")"
	}
	return text + fmt.Sprintf(") = %+v", o.Decision)
}
