package engine

import (
	"fmt"
	"time"
)

// Stats is a snapshot of an engine's counters. All except Name, Clock, Waiting, LongestWait, Keys, MaxKeys,
// KeysByUse, BlockedKeys, Abandoned, QueueDepth and the figures of saves only grow. The counts are exact,
// and are read one after the other while calls go on.
type Stats struct {
	// Name is Config.Name.
	Name string
	// Clock is "Config.Clock", "package time", or "counter": package time read from the processor's
	// counter. A counter may become package time, never the other way.
	Clock string

	// Admitted counts the allowed calls.
	Admitted uint64
	// Refused counts refused calls, each once also in OverLimit, Blocked, Misfits,
	// UnavailableRefused, FullRefused, Crowded, Late or Cancelled.
	Refused uint64
	// OverLimit counts calls that the key's limit had no room for, or never has.
	OverLimit uint64
	// Blocked counts calls refused because their key was blocked.
	Blocked uint64
	// Misfits counts calls refused because their limit is of another family than Config.Policy.
	Misfits uint64
	// UnavailableRefused counts the refused calls of Unavailable.
	UnavailableRefused uint64
	// FullRefused counts the refused calls of Full.
	FullRefused uint64
	// Crowded counts calls of Wait, Acquire and AcquireAll that ended with ErrCrowded.
	Crowded uint64
	// Late counts calls that ended with ErrDeadline, except those in Blocked, UnavailableRefused
	// and FullRefused. Calls without patience are among them.
	Late uint64
	// Cancelled counts calls that ended with ErrCancelled or ErrClosed.
	Cancelled uint64

	// Unavailable counts calls, admitted or refused, that were answered without the key's word: no
	// writer was available in time, or the key cannot be recorded.
	Unavailable uint64
	// Full counts the same for a full table, with Config.WhenFull RefuseNew or AdmitNew.
	Full uint64

	// Overstayed counts releases and extensions that came after their units in use had ended by themselves:
	// calls that lasted longer than the longest time of their policy.InFlight.
	// The first in ten seconds is also an event.
	Overstayed uint64

	// Unheld counts calls that took units of a policy.InFlight and returned nothing to release, such as Choke,
	// Take and Wait. Their units end after its longest time. That is probably a mistake, so the first is an event.
	Unheld uint64

	// Waiting is the number of calls in line for a key now.
	Waiting int
	// LongestWait is for how long the call has waited that has waited longest of those in line now.
	// LongestWait is 0 if no call waits.
	LongestWait time.Duration
	// Waits counts calls that have left the line of a key, with their units or without; WaitTime
	// adds up their time in line.
	Waits    uint64
	WaitTime time.Duration

	// BlockedKeys is the number of blocked keys, at present while at most 1,024 keys are blocked or
	// have refusals that count, otherwise as old as KeysByUse may be, and 0 before the first count.
	BlockedKeys int
	// Blocks counts the calls of Block that succeeded.
	Blocks uint64
	// Penalties counts the blocks that Config.Penalty made.
	Penalties uint64
	// Unpunished counts refusals that did not count towards a Penalty, for want of room or writer.
	Unpunished uint64

	// Warnings counts warnings of keys that passed a share of Config.WarnAt.
	Warnings uint64

	// Keys is the number of keys in the table now, at most MaxKeys.
	Keys int
	// MaxKeys is Config.MaxKeys, or its default.
	MaxKeys int
	// KeysByUse counts the keys by use of their limit, some time ago.
	KeysByUse KeysByUse
	// Evicted counts the keys that left, idle or to make room.
	Evicted uint64
	// Forgiven counts the keys given up to make room, or left out by a load, that still owed, were
	// blocked or had refusals that counted.
	Forgiven uint64
	// Restarts counts the restarts of the writer and the janitor.
	Restarts uint64
	// Dropped counts the commands given up on which the writer died twice.
	Dropped uint64
	// Abandoned is the number of goroutines that did not end in time.
	Abandoned int

	// QueueDepth is the number of commands that wait for the writer now.
	QueueDepth int

	// The last successful save to the file of Config.State: its beginning, its duration, the keys
	// written, and those that could not be: see KeyCodec. SavedAt is zero if there was none. Calls
	// of Save do not count.
	SavedAt  time.Time
	SaveTook time.Duration
	Saved    int
	Unsaved  uint64
	// SaveError is the reason that the last save failed, nil if that save succeeded. The next save
	// comes after State.Every.
	SaveError error
	// UnsavedSince is SavedAt, or when New opened the file if no save has succeeded: later units
	// are in no file. UnsavedSince is zero without Config.State.
	UnsavedSince time.Time
}

// String returns such as "api: 120 admitted, 30 refused, 12 of 1000000 keys, 4 blocked", for logs:
// after the keys come the counts of trouble that are not 0. Its form may change.
func (s Stats) String() string {
	buffer := fmt.Appendf(nil, "%d admitted, %d refused, %d of %d keys", s.Admitted, s.Refused, s.Keys, s.MaxKeys)
	if s.Name != "" {
		buffer = fmt.Appendf(nil, "%s: %s", s.Name, buffer)
	}
	for _, count := range []struct {
		n    uint64
		what string
	}{
		{s.Blocked, "blocked"}, {uint64(s.Waiting), "waiting"}, {s.Misfits, "misfits"}, {s.Unavailable, "unavailable"},
		{s.Full, "full"}, {s.Overstayed, "overstayed"}, {s.Unheld, "unheld"}, {s.Forgiven, "forgiven"}, {s.Restarts, "restarts"}, {s.Dropped, "dropped"},
		{uint64(s.Abandoned), "abandoned"}, {s.Unsaved, "unsaved"},
	} {
		if count.n > 0 {
			buffer = fmt.Appendf(buffer, ", %d %s", count.n, count.what)
		}
	}
	return string(buffer)
}

// KeysByUse counts the keys of a table by the share of their limit that they have used and that
// still counts, each key once. The limit is PolicyFor's or Config.Policy; units of TakeWith count
// as under that limit. Config.Policy stands in for a limit of another family. The engine looks at
// about 32,768 keys a second, each at its own moment. So the counts of a million keys are up to
// about a minute old, and of a small table up to 2 seconds. Keys that came or went meanwhile may be
// missing. It is zero before the first count.
type KeysByUse struct {
	// At is the end of the count. At is zero before the first.
	At time.Time

	// Unused counts the keys that have used nothing.
	Unused int
	// BelowHalf counts the keys that have used less than half.
	BelowHalf int
	// Half counts the keys that have used half or more, and less than 80%.
	Half int
	// Most counts the keys that have used 80% or more, and not all.
	Most int
	// All counts the keys that have used all: a call for one unit is refused now.
	All int

	// UnitsInUse adds up the units in use of these keys under a policy.InFlight. UnitsInUse is 0
	// under other limits.
	UnitsInUse uint64
}

// Stats returns the engine's counters. Its cost grows with the number of keys for which calls wait, and with no other.
func (e *Engine[K]) Stats() Stats {
	answers := e.control.Stats()
	view := e.table.View()
	counters := view.Counters()
	saves := e.keeper.read()
	stats := Stats{
		Name:               e.name,
		Clock:              e.time.name(),
		Admitted:           answers.Admitted,
		Refused:            answers.Refused,
		OverLimit:          answers.OverLimit,
		Blocked:            answers.Blocked,
		Misfits:            answers.Misfits,
		UnavailableRefused: answers.UnavailableRefused,
		FullRefused:        answers.FullRefused,
		Crowded:            answers.Crowded,
		Late:               answers.Late,
		Cancelled:          answers.Cancelled,
		Unavailable:        answers.Unavailable,
		Full:               answers.Full,
		Overstayed:         answers.Overstayed,
		Unheld:             e.misuse.count(),
		Waiting:            answers.Waiting,
		LongestWait:        answers.LongestWait,
		Waits:              answers.Waits,
		WaitTime:           answers.WaitTime,
		Warnings:           e.warned.count(),
		Keys:               e.Len(),
		MaxKeys:            e.config.MaxKeys,
		KeysByUse:          e.census.counted(),
		Evicted:            counters.Evicted.Load(),
		Forgiven:           counters.Forgiven.Load(),
		Restarts:           e.supervisor.Restarts(),
		Dropped:            e.dropped.Load(),
		Abandoned:          e.abandoned(),
		QueueDepth:         e.queue.Len(),
		SavedAt:            saves.wall,
		SaveTook:           saves.took,
		Saved:              saves.keys,
		Unsaved:            saves.unsaved,
		SaveError:          saves.err,
		UnsavedSince:       saves.since.Round(0),
	}
	if blocksEngine := e.blocks.Load(); blocksEngine != nil {
		stats.BlockedKeys = blocksEngine.blocked()
		stats.Blocks, stats.Penalties, stats.Unpunished = blocksEngine.made.Load(), blocksEngine.refusals.Blocks.Load(), blocksEngine.refusals.Uncounted.Load()
		stats.Forgiven += blocksEngine.table.View().Counters().Forgiven.Load()
		stats.Restarts += blocksEngine.supervisor.Restarts()
		stats.Dropped += blocksEngine.dropped.Load()
	}
	return stats
}
