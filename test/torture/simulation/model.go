package simulation

import (
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// world is an engine, its callers, and the answers that they should get.
type world struct {
	scheduler
	seed   uint64
	config engine.Config
	engine *engine.Engine[key]
	plan   plan

	limit    *limit
	regime   int // odd while the limit is being replaced
	keys     []key
	accounts []*account
	filed    []*table.Entry[key] // the entries in the map when a sweep or making room began
	dead     []*table.Entry[key] // the last entries that were seen to die
	callers  []*caller
	lines    [][]*caller // the calls in line for each key, in order of arrival

	roomy bool // there is room for all keys

	// The clock of the limits: package time's plus offset, or standing still.
	offset   int64
	stopped  bool
	stoppage int64
	wentBack bool
	ownClock bool
	// The engine's clock begins at first, never shows less, and is base more than the world's
	// clock.
	first policy.Instant
	base  int64
	tie   int64 // the engine's instant 0, since the run began

	saved      *saved // the last state that was saved; nil if none was
	restarting bool   // the engine is closing, and another is to follow
	loading    bool   // the other is being made
	gate       bool   // no call may begin
	unread     bool   // the other has not read its clock yet
	begun      int64  // the world's clock then

	// latest is the engine's latest reading of the clock.
	latest int64
	// vague is set if it is unknown which limit holds.
	vague bool
	// overstays is the highest possible Stats.Overstayed.
	overstays uint64

	total    counts
	forgiven uint64
	dropped  uint64
	hand     hand
	doing    string // the writer's last step that may evict
}

type plan struct {
	calls   int        // of each caller
	with    bool       // some takes pass an equal limit
	chosen  bool       // an equal limit is chosen for every call by its key
	verbs   [verbs]int // weight of each
	changes int
	close   bool
	restart uint64 // once in so many calls; 0 is never
}

type caller struct {
	w     *world
	actor *actor
	name  string
	ended bool

	// Of the call under way.
	busy   bool
	verb   int
	number int
	since  int64 // instant at which it began
	most   int64 // longest time that it may take; never if that is not known
	excuse int64 // time that jumped meanwhile
	lo, hi int64 // lowest and highest readings of the clock meanwhile
	read   int64 // its own last reading of the clock
	cancel int64 // instant at which its context ends, or never
	until  int64 // equal to cancel while a Wait is under way
	regime int   // at the beginning of the call, as are the next two
	epoch  int
	known  bool
	step   int // at the beginning, as are the next two
	open   int
	waits  int
	// overtaken is the instant at which a later call in line was served, or never.
	overtaken int64

	counts counts // of a TakeAll, so far

	held []held
}

// held is a reservation that may be cancelled.
type held struct {
	r     engine.Reservation[key]
	key   int
	epoch int
	index int
	out   *engine.Outcome // of a TakeAll of units in use, instead of r
	units []*units
}

// account records the admissions on a key in its present epoch, since the key was last forgiven,
// reset, or given another limit.
type account struct {
	name    string
	epoch   int
	takes   []admission
	back    int64 // units given back in this epoch
	lowered int

	// word is the instant at which a funnel will have drained, by takes in the order of their
	// swaps.
	word  int64
	known bool
	open  int  // calls under way with takes of unknown order
	loose bool // takes may lack some of this epoch

	// own is the key's limit in use by PolicyFor, nil for the world's.
	own *limit
	// switched is set if the last change of own was SwitchLimit: calls under way were decided anew.
	switched bool

	// The model of units in use: see units.
	units  []*units
	resets int // under way
	waits  int // calls that waited so far
}

// admission is n units that start at an instant from lo to hi. It is late if admissions with later
// swaps may have been recorded before it.
type admission struct {
	n      int64
	lo, hi int64
	late   bool
}

// saved is a state that an engine has saved, with its known properties.
type saved struct {
	state []byte
	marks []mark
	// Times of the save since the run began, its last reading of the clock, and the clock's bounds.
	began, ended int64
	read, lo, hi policy.Instant
	// regime is the world's, or -1 if the limit was being replaced.
	regime int
}

// mark is an account when a save began.
type mark struct {
	epoch, takes, lowered int
	word                  int64
	known                 bool
}

type hand struct {
	attempts int  // number of times that it was given out
	done     bool // it was carried out, unless the writer died then
	deaths   int  // number of deaths before it was done
}

type counts struct{ admitted, refused, unavailable, full uint64 }

const (
	choke = iota
	take
	peek
	reserve
	cancel
	refund
	reset
	wait
	takeAll
	sweep
	all
	save
	release
	extend
	verbs
)
