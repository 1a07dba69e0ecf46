package engine

import "time"

// Stats is a snapshot of an engine's counters. All except Name, Clock, Waiting, Keys, MaxKeys, KeysByUse,
// BlockedKeys, Abandoned, QueueDepth and those of saves only grow. The counts are exact,
// and are read one after the other while calls go on. Engine.Stats never goes through the keys.
type Stats struct {
	Name string // Config.Name
	// Clock is the clock by which the engine decides now: "Config.Clock", "package time",
	// or "counter", which is package time read from the processor's counter. A counter
	// may become package time, and never the other way.
	Clock string

	Admitted uint64 // calls that were allowed
	// Refused counts calls that were not. It is the sum of OverLimit, Blocked, Misfits,
	// UnavailableRefused, FullRefused, Crowded, Late and Cancelled: each call is in one of them.
	Refused uint64
	// OverLimit counts those refused because the key's limit had no room for them, or never has
	// as much as they asked for.
	OverLimit uint64
	// Blocked counts those refused because their key was blocked.
	Blocked uint64
	// Misfits counts those refused because PolicyFor or TakeWith brought a limit of
	// another family than Config.Policy. Such a limit refuses every call.
	Misfits uint64
	// UnavailableRefused counts those of Unavailable that were refused.
	UnavailableRefused uint64
	// FullRefused counts those of Full that were refused.
	FullRefused uint64
	// Crowded counts calls of Wait, Acquire and AcquireAll that ended with ErrCrowded.
	Crowded uint64
	// Late counts those that ended with ErrDeadline, except those in Blocked, UnavailableRefused
	// and FullRefused. Calls without patience are among them.
	Late uint64
	// Cancelled counts those that ended with ErrCancelled or ErrClosed.
	Cancelled uint64

	// Unavailable counts those of Admitted and of Refused that were answered without the key's
	// word because there was no writer in time, or the key cannot be recorded.
	Unavailable uint64
	// Full counts those of both that were answered without the key's word
	// because the table was full and Config.WhenFull is RefuseNew or AdmitNew.
	Full uint64

	Waiting int // calls that stand in the line of a key now
	// Waits counts the calls that have stood in the line of a key and have left it, with their
	// units or without, and WaitTime adds up how long each of them did.
	Waits    uint64
	WaitTime time.Duration

	// BlockedKeys is the number of keys that are blocked. It is that of now while at most 1,024
	// keys are blocked or have refusals that count. Otherwise it is that of the last count, which
	// is as old as KeysByUse may be, and 0 before the first.
	BlockedKeys int
	Blocks      uint64 // calls of Block that succeeded
	Penalties   uint64 // blocks that Config.Penalty made
	// Unpunished counts refusals that did not count towards a Penalty, for want of room or
	// of a writer.
	Unpunished uint64

	Keys    int // keys in the table now, at most MaxKeys
	MaxKeys int // Config.MaxKeys, or its default
	// KeysByUse counts the keys by how much of their limit they have used, some time ago.
	KeysByUse KeysByUse
	Evicted   uint64 // keys that left, idle or to make room
	// Forgiven counts those of them that still owed, and keys of which refusals counted, or
	// which a load left out although they were blocked: given up to make room.
	Forgiven  uint64
	Restarts  uint64 // restarts of the writer and the janitor
	Dropped   uint64 // commands given up because the writer died of them twice
	Abandoned int    // goroutines that did not end when they should have

	QueueDepth int // commands that wait for the writer now

	// Of the last save to the file of Config.State that succeeded: when it began, how long
	// it took, the keys that were written, and those that could not be: see KeyCodec. SavedAt
	// is zero if there was none. Calls of Save do not count.
	SavedAt  time.Time
	SaveTook time.Duration
	Saved    int
	Unsaved  uint64
	// SaveError is why the last save failed, and nil if it did not. The next one is tried
	// after State.Every.
	SaveError error
	// UnsavedSince is the time from which on units are in no file: SavedAt, or when New opened the
	// file if no save has succeeded yet. It is zero without Config.State.
	UnsavedSince time.Time
}

// KeysByUse counts the keys of a table by the share of their limit that they have used and that
// still counts. Each key is in one of the counts. The engine looks at about 32,768
// keys a second, and at each at its own moment. So the counts of a million keys are up to about a
// minute old, and those of a small table up to 2 seconds. Keys that came or went meanwhile may be
// missing. The zero KeysByUse is that of an engine that has not counted yet.
//
// The limit is that of the engine. Calls of TakeWith have used of it what their units count
// under it.
type KeysByUse struct {
	At time.Time // when the count ended; zero before the first

	Unused    int // have used nothing
	BelowHalf int // less than half
	Half      int // half or more, and less than 80%
	Most      int // 80% or more, and not all
	All       int // all: a call for one unit is refused now

	// Chosen counts keys of an engine with PolicyFor that have used something. Only calls know
	// what their limits are.
	Chosen int
}

// Stats returns the engine's counters. Its cost does not grow with the number of keys.
func (e *Engine[K]) Stats() Stats {
	answers := e.control.Stats()
	view := e.table.View()
	counters := view.Counters()
	saves := e.keeper.read()
	s := Stats{
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
		Waiting:            answers.Waiting,
		Waits:              answers.Waits,
		WaitTime:           answers.WaitTime,
		Keys:               e.Len(),
		MaxKeys:            e.config.MaxKeys,
		KeysByUse:          e.census.counted(),
		Evicted:            counters.Evicted.Load(),
		Forgiven:           counters.Forgiven.Load(),
		Restarts:           e.supervisor.Restarts(),
		Dropped:            e.dropped.Load(),
		Abandoned:          e.abandoned(),
		QueueDepth:         e.queue.Len(),
		SavedAt:            saves.at,
		SaveTook:           saves.took,
		Saved:              saves.keys,
		Unsaved:            saves.unsaved,
		SaveError:          saves.err,
		UnsavedSince:       saves.since.Round(0),
	}
	if b := e.blocks.Load(); b != nil {
		s.BlockedKeys = b.blocked()
		s.Blocks, s.Penalties, s.Unpunished = b.made.Load(), b.refusals.Blocks.Load(), b.refusals.Uncounted.Load()
		s.Forgiven += b.table.View().Counters().Forgiven.Load()
		s.Restarts += b.supervisor.Restarts()
		s.Dropped += b.dropped.Load()
	}
	return s
}
