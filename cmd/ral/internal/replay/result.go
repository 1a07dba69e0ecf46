package replay

import (
	"cmp"
	"slices"
	"time"
)

// Result is what the limits would have done.
type Result struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Requests int64     `json:"requests"`
	Units    int64     `json:"units"`
	// Keys counts a key again if it came back after it was forgotten.
	Keys int64 `json:"keys"`
	// AreWhole reports whether the log's stamps are whole seconds.
	AreWhole bool `json:"whole_seconds"`
	// WasRefused counts the log's own refusals, and Both those that the limits refuse, too.
	WasRefused     int64 `json:"refused_by_log"`
	WasRefusedKeys int64 `json:"refused_by_log_keys"`
	Both           int64 `json:"refused_by_both"`
	// Newly counts requests that are refused, and were not by the limits compared with or, without those, in the log.
	// Lifted counts those that are admitted and were refused.
	Newly  Change `json:"newly_refused"`
	Lifted Change `json:"newly_admitted"`
	// Scenarios begin with the limits at the times of the log.
	Scenarios []Scenario `json:"scenarios"`
	Top       []Key      `json:"keys_most_refused"`
	Chart     []Slot     `json:"chart"`
	// SlotWidth is the time of a Slot.
	SlotWidth time.Duration `json:"slot_nanoseconds"`

	// Needs has the needs of all keys of Plans by each of Config.Gauges.
	Needs []Needs  `json:"-"`
	Plans []string `json:"-"`

	// Late counts requests whose line came too late for the window, and Crowded those that left a full window early.
	Late    int64 `json:"late"`
	Crowded int64 `json:"crowded"`
	// Unknown counts requests of keys without room, which were not replayed. Forgotten counts keys that were given up
	// while they owed nothing, and ForgottenRefused those of them that had been refused.
	Unknown          int64 `json:"requests_without_room"`
	Forgotten        int64 `json:"keys_forgotten"`
	ForgottenRefused int64 `json:"refused_keys_forgotten"`
	// TooFar counts requests with a time years after the others, which were not replayed.
	TooFar int64 `json:"too_far"`
	// Blocked counts requests of keys that were blocked by hand in a record, which all limits refuse. LimitChanges counts
	// the changes of the recorded limit, and Followed those of a limit that is replayed, which changed, too.
	Blocked      int64 `json:"blocked"`
	LimitChanges int64 `json:"limit_changes"`
	Followed     int64 `json:"limit_changes_followed"`
	// OtherPlans counts requests of plans that came after 16 others, which were not replayed.
	OtherPlans int64 `json:"other_plans"`
}

// Change counts requests whose answer differs, and their keys.
type Change struct {
	Requests int64 `json:"requests"`
	Keys     int64 `json:"keys"`
}

// Scenario is the answer under an assumption.
type Scenario struct {
	Name string `json:"name"`
	// Requests counts those that came again, too.
	Requests     int64 `json:"requests"`
	Refused      int64 `json:"refused"`
	RefusedUnits int64 `json:"refused_units"`
	RefusedKeys  int64 `json:"refused_keys"`
	// Delayed counts requests that a queue delays.
	Delayed int64 `json:"delayed"`
	// Late counts requests that were admitted when they came again, GaveUp those that never were, and Lost events
	// for which there was no memory.
	Late   int64   `json:"admitted_later"`
	GaveUp int64   `json:"gave_up"`
	Lost   int64   `json:"lost"`
	Bound  []Bound `json:"limits"`
}

// Bound counts the refusals of a limit with the longest wait.
type Bound struct {
	Limit   string `json:"limit"`
	Refused int64  `json:"refused"`
}

// Key is a key that was refused.
type Key struct {
	Key        string `json:"key"`
	Requests   uint32 `json:"requests"`
	Refused    uint32 `json:"refused"`
	WasRefused uint32 `json:"refused_by_log"`
}

const maxTop = 20 // keys in the list

func topKeys(keys []Key) []Key {
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), maxTop)]
}

// Slot counts the requests of a part of the log's time.
type Slot struct {
	Requests   int64 `json:"requests"`
	Refused    int64 `json:"refused"`
	WasRefused int64 `json:"refused_by_log"`
}

// chart has slots of a width that doubles when there are too many.
type chart struct {
	zero  int64
	Width time.Duration
	slots []Slot
}

const maxSlots = 240

func (c *chart) add(arrival int64, isRefused, wasRefused bool) {
	for (arrival-c.zero)/int64(c.Width) >= maxSlots {
		c.Width *= 2
		merged := c.slots[:0]
		for i, slot := range c.slots {
			if i%2 == 0 {
				merged = append(merged, slot)
			} else {
				merged[i/2].add(slot)
			}
		}
		c.slots = merged
	}
	i := int((arrival - c.zero) / int64(c.Width))
	for len(c.slots) <= i {
		c.slots = append(c.slots, Slot{})
	}
	one := Slot{Requests: 1}
	if isRefused {
		one.Refused = 1
	}
	if wasRefused {
		one.WasRefused = 1
	}
	c.slots[i].add(one)
}

func (s *Slot) add(o Slot) {
	s.Requests += o.Requests
	s.Refused += o.Refused
	s.WasRefused += o.WasRefused
}
