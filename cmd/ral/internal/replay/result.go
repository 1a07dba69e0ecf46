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
	Chart     Chart      `json:"chart"`

	// Needs has the needs of all keys of Plans by each of Config.Gauges.
	Needs []Needs  `json:"-"`
	Plans []string `json:"-"`

	// Late counts requests whose line came too late for the window, and Crowded those that left a full window early.
	Late    int64 `json:"late"`
	Crowded int64 `json:"crowded"`
	// Unknown counts requests of keys without room, which were not replayed. Forgotten counts keys that were given up
	// while they owed nothing.
	Unknown   int64 `json:"requests_without_room"`
	Forgotten int64 `json:"keys_forgotten"`
	// TooFar counts requests with a time years after the others, which were not replayed.
	TooFar int64 `json:"too_far"`
	// Blocked counts requests of keys that were blocked by hand in a record, which all limits refuse. LimitChanges counts
	// the changes of the recorded limit, and Followed those of a limit that is replayed, which changed, too.
	Blocked      int64 `json:"blocked"`
	LimitChanges int64 `json:"limit_changes"`
	Followed     int64 `json:"limit_changes_followed"`
	// Loaded counts the keys that began as Config.States say, and LoadedMet counts such keys with requests.
	Loaded    int64 `json:"keys_of_states"`
	LoadedMet int64 `json:"keys_of_states_with_requests"`
	// LostByRecorder counts the lines that a record lacks since its Recorder lost them.
	LostByRecorder int64 `json:"lines_lost_by_recorder"`
	// Restarts counts the engines of a record that began behind the first.
	Restarts int64 `json:"engine_restarts"`
	// OtherPlans counts requests of plans that came after 16 others, which were not replayed.
	OtherPlans int64 `json:"other_plans"`
}

// Unfollowed counts the changes of the recorded limit that no limit followed.
func (r *Result) Unfollowed() int64 { return r.LimitChanges - r.Followed }

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

// Chart counts the requests of equal parts of the log's time.
type Chart struct {
	// First is the number of the first slot since 1970, and Width the time of a slot.
	First int64         `json:"first_slot"`
	Width time.Duration `json:"slot_nanoseconds"`
	Slots []Slot        `json:"slots"`
}

const maxSlots = 240

// wider are times of slots, as multiples of the one before. The first is a second, and the last are a minute, an hour and
// a day, and parts and multiples of them.
var wider = map[time.Duration]int64{
	time.Second: 5, 5 * time.Second: 3, 15 * time.Second: 4, time.Minute: 5, 5 * time.Minute: 3, 15 * time.Minute: 4,
	time.Hour: 4, 4 * time.Hour: 3, 12 * time.Hour: 2,
}

// Within returns the chart with wider slots, so that there are at most so many.
func (c Chart) Within(slots int) Chart {
	for len(c.Slots) > slots {
		c = c.merged()
	}
	return c
}

func (c Chart) merged() Chart {
	n := max(wider[c.Width], 2)
	chart := Chart{First: c.First / n, Width: c.Width * time.Duration(n)}
	for i, slot := range c.Slots {
		chart.slot((c.First + int64(i)) / n).add(slot)
	}
	return chart
}

// slot returns the slot of that number. A number before the first counts as the first.
func (c *Chart) slot(number int64) *Slot {
	i := int(max(number-c.First, 0))
	for len(c.Slots) <= i {
		c.Slots = append(c.Slots, Slot{})
	}
	return &c.Slots[i]
}

func (c *Chart) add(arrival int64, isRefused, wasRefused bool) {
	if c.Slots == nil {
		c.Width, c.First = time.Second, arrival/int64(time.Second)
	}
	for arrival/int64(c.Width)-c.First >= maxSlots {
		*c = c.merged()
	}
	slot := c.slot(arrival / int64(c.Width))
	slot.Requests++
	if isRefused {
		slot.Refused++
	}
	if wasRefused {
		slot.WasRefused++
	}
}

func (s *Slot) add(slot Slot) {
	s.Requests += slot.Requests
	s.Refused += slot.Refused
	s.WasRefused += slot.WasRefused
}
