package limitfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Change is a setting of a limit that differs between two files.
type Change struct {
	Name string
	// Setting is "" for the limit itself, or "plan NAME", "candidate", "shadow", "warn-at",
	// "penalty", "share NAME", "ceiling NAME" or "reserved".
	Setting string
	// From and To are the texts in the two files. "" stands for none.
	From, To string
	// KeysAtLimit is the number of keys without a unit left under the new limit, counted after the limit
	// came into force. It is -1 if no limiter has counted them.
	KeysAtLimit int
	// AtStart reports whether the change comes into force only when the program makes the limiter anew.
	AtStart bool

	// maxBefore and maxAfter are the most units that a call can take under the earlier and the later limit. Both are
	// 0 unless a limit has changed.
	maxBefore, maxAfter int64
	// needsRoom reports whether a share grows while the reserve may have no room for it.
	needsRoom bool
}

// String returns a line for logs, such as "per-user: window 100/h -> window 200/h, 3 keys at their
// limit".
func (c Change) String() string {
	from, to := c.From, c.To
	if to == "" {
		to = "none"
	}
	text := keyOf(c.Name, c.Setting) + ": " + from + " -> " + to
	if from == "" {
		text = keyOf(c.Name, c.Setting) + ": new, " + to
	}
	switch {
	case c.KeysAtLimit == 1:
		text += ", 1 key at its limit"
	case c.KeysAtLimit >= 0:
		text += fmt.Sprintf(", %d keys at their limit", c.KeysAtLimit)
	}
	switch lost := c.maxBefore - c.maxAfter; {
	case lost == 1:
		text += fmt.Sprintf("; calls for %d units are refused now", c.maxBefore)
	case lost > 1:
		text += fmt.Sprintf("; calls for %d to %d units are refused now", c.maxAfter+1, c.maxBefore)
	}
	if c.needsRoom {
		text += "; it waits until other tenants leave as much, or for the next start, as the limit before has no larger \"reserved\""
	}
	if c.AtStart {
		text += ", at the next start"
	}
	if c.Setting == "" && c.To == "" {
		text += "; a program that uses it refuses the file"
	}
	return text
}

// entry is a setting of a limit that decides calls. policy is nil for a setting that is no limit.
type entry struct {
	setting, text string
	policy        policy.Policy
	// share is the limit of a tenant, or nil.
	share policy.Policy
}

// entries returns the entries of a limit, in a fixed order, with the texts that limiters hold.
func (l *Limit) entries() []entry {
	all := l.policies()
	for _, key := range []string{"shadow", "warn-at", "penalty"} {
		setting, ok := l.settings[key]
		if ok && (key != "shadow" || l.Shadow) {
			all = append(all, entry{setting: key, text: strings.Join(strings.Fields(setting.value), " ")})
		}
	}
	if l.Reserved != nil {
		all = append(all, entry{setting: reserved, text: l.Reserved.String()})
	}
	for prefix, shares := range l.byTenant() {
		for _, share := range shares {
			all = append(all, entry{setting: prefix + share.Name, text: share.Policy.String(), share: share.Policy})
		}
	}
	if l.held == nil {
		return all
	}
	l.held.Lock()
	held := maps.Clone(l.held.texts)
	l.held.Unlock()
	for i := range all {
		if text, ok := held[all[i].setting]; ok {
			all[i].text = text
			delete(held, all[i].setting)
		}
	}
	for _, setting := range slices.Sorted(maps.Keys(held)) {
		all = append(all, entry{setting: setting, text: held[setting]})
	}
	return slices.DeleteFunc(all, func(entry entry) bool { return entry.text == "" })
}

// policies returns the entries that are limits: the limit itself, its plans and its candidate.
func (l *Limit) policies() []entry {
	all := []entry{{setting: "", text: l.Policy.String(), policy: l.Policy}}
	for _, plan := range l.Plans {
		all = append(all, entry{setting: planPrefix + plan.Name, text: plan.Policy.String(), policy: plan.Policy})
	}
	if l.Candidate != nil {
		all = append(all, entry{setting: candidate, text: l.Candidate.String(), policy: l.Candidate})
	}
	return all
}

// Compare returns the changes between the limits of two files. The limits of the later file come first, in
// its order, and then the limits that it lacks. The error joins a *[Fault] for each reason that a running program
// refuses the later file. A limit or plan must keep its kind and period, since keys count under it. A limit that
// its limiter could not change counts as the limiter holds it.
func Compare(before, after []Limit) (changes []Change, err error) {
	var faults []error
	gone := byName(before)
	for i := range after {
		limit := &after[i]
		old := map[string]entry{}
		earlier := gone[limit.Name]
		delete(gone, limit.Name)
		if earlier != nil {
			for _, entry := range earlier.entries() {
				old[entry.setting] = entry
			}
		}
		for _, entry := range limit.entries() {
			replaced := old[entry.setting]
			delete(old, entry.setting)
			if replaced.text == entry.text {
				continue
			}
			change := Change{Name: limit.Name, Setting: entry.setting, From: replaced.text, To: entry.text, KeysAtLimit: -1}
			if replaced.policy != nil {
				change.maxBefore, change.maxAfter = replaced.policy.Limit(), entry.policy.Limit()
				if entry.setting != candidate && !follows(entry.policy, replaced.policy) {
					faults = append(faults, limit.otherFamily(entry, replaced.policy))
				}
			}
			change.needsRoom = earlier != nil && strings.HasPrefix(entry.setting, sharePrefix) && grows(entry.share, replaced.share) && !earlier.fits(limit)
			change.AtStart = earlier != nil && (entry.isFixed() || entry.setting == "" && limit.isShared())
			changes = append(changes, change)
		}
		if earlier != nil && earlier.isShared() != limit.isShared() {
			faults = append(faults, limit.fault("", "a limit with shares takes the place of one without, or the reverse: another name is accepted"))
		}
		if earlier != nil {
			changes = append(changes, earlier.without(old)...)
		}
	}
	for i := range before {
		if limit := &before[i]; gone[limit.Name] != nil {
			changes = append(changes, limit.without(map[string]entry{"": {}})...)
		}
	}
	return changes, errors.Join(faults...)
}

// byName returns the limits by name.
func byName(limits []Limit) map[string]*Limit {
	all := make(map[string]*Limit, len(limits))
	for i := range limits {
		all[limits[i].Name] = &limits[i]
	}
	return all
}

// isFixed reports whether the entry cannot change once a limiter is made.
func (e entry) isFixed() bool {
	return slices.Contains([]string{"warn-at", "penalty", reserved}, e.setting)
}

// grows reports whether a guarantee takes more out of a reserve than the earlier guarantee, before, which may be nil.
func grows(guarantee, before policy.Policy) bool {
	if before == nil {
		return true
	}
	to, isFunnel := guarantee.(shape.Shaped)
	from, wasFunnel := before.(shape.Shaped)
	if !isFunnel || !wasFunnel { // units in use, which have no rate
		return guarantee.Limit() > before.Limit()
	}
	return to.Shape().Capacity > from.Shape().Capacity || to.Shape().Interval < from.Shape().Interval
}

// fits reports whether the reserve of limit l certainly has room for the guarantees of a later limit.
func (l *Limit) fits(later *Limit) bool {
	if l.Reserved == nil {
		return false // the reserve is just the sum of the guarantees of l
	}
	changed := *later
	changed.Policy, changed.Reserved = l.Policy, l.Reserved
	config, _ := changed.SharesConfig(func() *Limit { return later })
	_, err := engine.NewShares(config)
	return err == nil
}

// without returns a change for each entry of the limit with one of the settings, which the later file lacks.
func (l *Limit) without(settings map[string]entry) (changes []Change) {
	for _, entry := range l.entries() {
		if _, ok := settings[entry.setting]; ok {
			changes = append(changes, Change{Name: l.Name, Setting: entry.setting, From: entry.text, KeysAtLimit: -1, AtStart: entry.isFixed()})
		}
	}
	return changes
}

// follows reports whether limit p can take the place of limit before for keys in use. It can if both have
// the same kind and period. Engines accept other periods, but a window whose length changes again and again
// would never end. A WarmingUp can only follow an equal WarmingUp.
func follows(p, before policy.Policy) bool {
	return reads(p, before) || shape.SameWindow(p, before)
}

// reads reports whether calls under either limit can come in any order.
func reads(limit, before policy.Policy) bool {
	related, ok := limit.(policy.Relative)
	return ok && related.Reads(before)
}

// otherFamily returns the fault of an entry whose limit cannot take the place of the earlier limit.
func (l *Limit) otherFamily(entry entry, before policy.Policy) *Fault {
	return l.fault(entry.setting, "keys count under %q, of another family than %q: a limit of the same kind and period is accepted, or another name", before, entry.text)
}
