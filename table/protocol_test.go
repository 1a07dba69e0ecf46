package table

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A world is a real table with a few callers and a writer, all of them processes of an explorer.
// The callers do the work of package cell, and the writer that of package engine, in a few lines.
//
// After each step and at the end of each schedule these hold:
//
//  1. At most one entry of a key is landed or filed.
//  2. Such an entry is in its slot or in the map: callers find it.
//  3. There are never more entries than MaxKeys.
//  4. Takes of a key are at least an hour apart, its limit, unless it was forgiven in between.
//
// And when all callers have ended and the writer has settled:
//
//  5. Every call not refused was admitted: there were as many takes as the scenario says.
//  6. The takes are still in the word of the entry.
//  7. Map, index and count agree, and the nursery is empty: all dead entries have left.
//
// A call that finds the table full fails, unless there are more keys than places.
//
// In some scenarios the policy changes. All takes are admitted, and each word names the policy that
// left it (see tally). In place of (4) to (6) these hold after each step:
//
//  8. No policy gets a word of another, except to Carry it. The epoch bit says truly whether a word
//     is of the present policy or the last.
//  9. The words of a key, even if evicted, have all units taken: none lost or carried twice.
//  10. Nothing is evicted before it is fresh.
//  11. Unless a change is under way, all words have the present epoch bit, also of unused keys.
//
// And at the end every change was answered, the last change made holds, and none is under way.
type world struct {
	*explorer
	table *Table[string]
	now   policy.Instant

	// queue has the commands that callers have sent.
	queue []func()
	// script has the other steps of the writer, in this order, at any time.
	script []func()
	// hand is the step at which the writer was killed.
	hand    func()
	attempt int
	// deaths is how often the writer may still be killed.
	deaths int
	killed bool
	// losses is the number of commands that may still be lost.
	losses int
	twice  bool
	// nearlyFull lets MakeRoom forgive.
	nearlyFull bool
	// aging lets time pass.
	aging bool

	calling int
	// resting is set while the writer has nothing to do.
	resting bool
	gaveUp  int
	seen    []*Entry[string]
	taken   []taken
	// want is the right number of takes.
	want int

	tallies bool
	// asked is the change that the writer was about to make, if any.
	asked *Change
	// holds is the tally last reported in force, or 0 if other processes ask, too.
	holds uint64
	// last has the last words of seen that meant something.
	last []uint64
}

type taken struct {
	key string
	at  policy.Instant
}

const hour = policy.Instant(time.Hour)

// killed is the value with which the writer panics when the schedule kills it.
type killed struct{}

func newWorld(x *explorer, maxKeys int, hashes map[string]uint64) *world {
	w := &world{explorer: x, now: 1}
	w.table = New[string](Options{
		Policy:  policy.Must(policy.Funnel(1, 1, time.Hour)),
		Idle:    time.Minute,
		MaxKeys: maxKeys,
		Fault:   w.fault,
	})
	w.table.step = func(point string) {
		if strings.HasPrefix(point, "read:") && !w.tallies {
			// The point is of interest only if the policy changes.
			return
		}
		x.step(point)
	}
	w.table.hasher = func(key string) uint64 { return hashes[key] }
	return w
}

func (w *world) fault(point string) {
	if !slices.Contains(Points(), point) {
		panic(point + " is missing in Points")
	}
	w.step(point)
	if w.current != nil && w.deaths > 0 && w.choose(2) == 1 {
		w.deaths--
		w.killed = true
		panic(killed{})
	}
}

// callers adds a process for each list of keys, which takes once for each key.
func (w *world) callers(lists ...string) {
	for _, keys := range lists {
		w.calling++
		w.spawn(fmt.Sprintf("caller %d of %s", w.calling, keys), func() {
			for _, key := range strings.Fields(keys) {
				w.call(key)
			}
			w.calling--
		})
	}
}

// call is cell.Choke on a key, but begins with Open instead of a look: there are fewer schedules,
// and Open looks first.
func (w *world) call(key string) {
	view, hash := w.table.View(), w.table.hash(key)
	now := w.now
	for patience := 3; patience > 0; {
		e, status := view.Open(hash, key)
		if status == Undecided {
			places := &w.table.places
			w.await("call: busy", func() bool {
				return places.word.Load() < uncertain || places.taken() < w.table.maxKeys
			})
			continue
		}
		if status == Full {
			if !w.nearlyFull {
				panic("the table has room for all keys, and a call finds none")
			}
			patience--
			w.send(func() { w.table.Apply(RoomCommand(key, now)) })
			w.await("call: full", func() bool { return w.resting || w.table.View().Len() < int(w.table.maxKeys) })
			continue
		}
		if status == Landed {
			w.step("call: send")
			w.file(e, now)
		}
		now = w.now
		if w.takeFrom(e, now) {
			return
		}
	}
	w.gaveUp++
}

// finder adds a process that looks for a key once it was taken from.
func (w *world) finder(key string, look func(View[string], uint64, string) *Entry[string]) {
	w.calling++
	w.spawn("finder", func() {
		w.await("find: begin", func() bool { return len(w.taken) > 0 || w.calling == 1 })
		if look(w.table.View(), w.table.hash(key), key) == nil {
			panic("a key that was taken from is not found")
		}
		w.calling--
	})
}

func (w *world) takeFrom(e *Entry[string], now policy.Instant) bool {
	for {
		w.step("take: read")
		word, terms := w.table.View().Read(e)
		state, alive := terms.State(word)
		if !alive {
			return false
		}
		next, d := terms.Policy.Take(state, now, 1, 0)
		if !d.Allowed {
			return true
		}
		w.step("take: advance")
		if e.Advance(word, next|terms.EpochBit) {
			w.taken = append(w.taken, taken{e.Key(), now})
			return true
		}
	}
}

// changer adds a process that replaces the policy by each tally, as Cell.SetPolicy does.
func (w *world) changer(ids ...uint64) {
	w.calling++
	w.spawn("changer", func() {
		for _, id := range ids {
			for w.change(id) != ChangeMade {
				w.await("change: later", func() bool { return !w.table.changing })
			}
			if w.holds != 0 {
				w.holds = id
			}
		}
		w.calling--
	})
}

func (w *world) change(id uint64) ChangeResult {
	c := NewChange(tally{id}, 1)
	command := func() {
		w.asked = c
		w.table.Apply(ChangeCommand[string](c))
		w.asked = nil
	}
	w.send(command)
	if w.twice {
		w.send(command)
	}
	w.await("change: asked", func() bool { return len(c.answer) > 0 })
	return <-c.Answer()
}

func (w *world) walker(key string) {
	w.calling++
	w.spawn("walker", func() {
		seen := 0
		for e := range w.table.View().All() {
			if w.step("walk: entry"); e.Key() == key {
				seen++
			}
		}
		if seen != 1 {
			panic(fmt.Sprintf("a key that was there all the time was seen %d times", seen))
		}
		w.calling--
	})
}

func (w *world) file(e *Entry[string], now policy.Instant) {
	if w.losses > 0 && w.choose(2) == 1 {
		w.losses--
		w.table.View().NoteLostFiling()
		return
	}
	command := func() { w.table.Apply(FileCommand[string](w.table.hash(e.Key()), now)) }
	w.send(command)
	if w.twice {
		w.send(command)
	}
}

func (w *world) send(command func()) {
	w.queue = append(w.queue, command)
	w.resting = false
}

func (w *world) writer() {
	w.spawn("writer", func() {
		for !w.incarnation() {
		}
	})
}

func (w *world) incarnation() (ended bool) {
	defer func() {
		if r := recover(); r != nil && r != (killed{}) {
			panic(r)
		}
	}()
	if w.killed {
		w.table.Recover()
	}
	for {
		if w.hand != nil {
			if w.attempt++; w.attempt <= 2 {
				w.hand()
			} else if w.asked != nil {
				w.table.Abandon(ChangeCommand[string](w.asked))
			}
			w.hand, w.attempt, w.asked = nil, 0, nil
			continue
		}
		var options []func()
		if len(w.queue) > 0 {
			options = append(options, func() {
				w.hand, w.queue = w.queue[0], w.queue[1:]
			})
		}
		if len(w.script) > 0 {
			options = append(options, func() {
				w.hand, w.script = w.script[0], w.script[1:]
			})
		}
		if w.table.Unsettled() {
			options = append(options, func() { w.table.Settle(w.now) })
		}
		if len(options) > 0 {
			w.resting = false
			options[w.choose(len(options))]()
			continue
		}
		if w.calling == 0 {
			return true
		}
		w.resting = true
		w.await("writer: rests", func() bool {
			return len(w.queue) > 0 || w.table.Unsettled() || w.calling == 0
		})
	}
}

// The steps of scripts.

func (w *world) sweep()                        { w.table.Sweep(w.now, 8) }
func (w *world) passes(d time.Duration) func() { return func() { w.now += policy.Instant(d) } }
func (w *world) again(e *Entry[string]) func() {
	return func() { w.table.Apply(FileCommand[string](w.table.hash(e.Key()), w.now)) }
}

// landed opens a key and takes once before the processes begin, unfiled.
func (w *world) landed(key string) { w.call(key) }

// known is landed, and files the key.
func (w *world) known(key string) *Entry[string] {
	w.call(key)
	w.queue[0]()
	w.queue = nil
	e := w.table.find(w.table.hash(key), key)
	w.seen = append(w.seen, e)
	return e
}

// unused opens and files a key before the processes begin.
func (w *world) unused(key string) {
	e, _ := w.table.View().Open(w.table.hash(key), key)
	w.table.File(w.table.hash(e.Key()), w.now)
	w.seen = append(w.seen, e)
}

func (w *world) tallied() {
	w.tallies, w.holds = true, 1
	w.table.terms.Store(newTerms(tally{1}, 0, nil, nil))
}

func (w *world) each() string {
	for i := range w.table.nursery {
		for n := w.table.nursery[i].Load(); n != nil; n = n.next.Load() {
			if !slices.Contains(w.seen, n.entry) {
				w.seen = append(w.seen, n.entry)
			}
		}
	}
	m := w.table.moving.Load()
	if m != nil && m.from.Word() != moved {
		m = nil
	}
	if m != nil && !slices.Contains(w.seen, m.to) {
		w.seen = append(w.seen, m.to)
	}
	for i, e := range w.seen {
		if e.Word() >= tentative {
			continue
		}
		for _, other := range w.seen[:i] {
			if other.Key() == e.Key() && other.Word() < tentative {
				return fmt.Sprintf("key %s has two entries", e.Key())
			}
		}
		hash := w.table.hash(e.Key())
		if nodeOf(w.table.slotOf(hash), e) == nil && !w.filed(hash, e) && (m == nil || m.to != e) {
			return fmt.Sprintf("the entry of key %s can not be found", e.Key())
		}
	}
	if n := w.table.places.taken(); n < 0 || n > w.table.maxKeys {
		return fmt.Sprintf("%d entries", n)
	}
	if w.tallies {
		return w.eachTally()
	}
	if n := len(w.taken); n > 0 && !w.nearlyFull {
		last := w.taken[n-1]
		for _, other := range w.taken[:n-1] {
			if other.key == last.key && last.at < other.at+hour && other.at < last.at+hour {
				return fmt.Sprintf("key %s was admitted at %v and at %v", last.key,
					time.Duration(other.at), time.Duration(last.at))
			}
		}
	}
	return ""
}

func (w *world) eachTally() string {
	units := map[string]int{}
	terms := w.table.terms.Load()
	for i, e := range w.seen {
		if i == len(w.last) {
			w.last = append(w.last, 0)
		}
		word := e.Word()
		switch word {
		case tentative:
		case moved:
			// The successor has all takes.
			w.last[i] = 0
		case tombstone:
			// Only an eviction kills a used entry.
			if fresh := policy.Instant(w.last[i]&(1<<tallyCount-1)) * second; fresh > w.now {
				return fmt.Sprintf("key %s was evicted %v too early", e.Key(), time.Duration(fresh-w.now))
			}
		default:
			if wrong := misfit(w.table, terms, e); wrong != "" {
				return wrong
			}
			w.last[i] = word
		}
		units[e.Key()] += int(tallied(w.last[i]))
	}
	for _, take := range w.taken {
		units[take.key]--
	}
	for key, n := range units {
		if n != 0 {
			return fmt.Sprintf("key %s has %+d units", key, n)
		}
	}
	return ""
}

// misfit returns an error text for the word of a live entry of tallies, or "". The writer must be
// at rest, or the caller between two of its steps.
func misfit(t *Table[string], terms *Terms, e *Entry[string]) string {
	word := e.Word()
	if word >= tentative {
		return ""
	}
	present := terms.Policy
	if word&epochBit != terms.EpochBit {
		if !t.changing {
			return fmt.Sprintf("the change is over, and key %s has word %#x of mark %#x", e.Key(), word, terms.EpochBit)
		}
		present = terms.before
	}
	if id := word &^ epochBit >> tallyID; id != 0 && present != policy.Policy(tally{id}) {
		return fmt.Sprintf("key %s has word %#x, which is not of %v as its mark says", e.Key(), word, present)
	}
	return ""
}

func (w *world) filed(hash uint64, e *Entry[string]) bool {
	i, rest := w.table.shardOf(hash)
	s := w.table.shards[i].Load()
	return s != nil && s.has(s.place(hash, rest), e)
}

func (w *world) end() string {
	w.current = nil
	for i := range w.table.nursery {
		if w.table.nursery[i].Load() != nil {
			return "a slot is still occupied"
		}
	}
	if err := w.table.Check(); err != nil {
		return err.Error()
	}
	if w.tallies {
		switch p := w.table.terms.Load().Policy; {
		case w.table.changing:
			return "a change is under way still"
		case w.holds != 0 && p != policy.Policy(tally{w.holds}):
			return fmt.Sprintf("%v holds in the end, and not %d", p, w.holds)
		case len(w.taken) != w.want-w.gaveUp:
			return fmt.Sprintf("%d takes, should be %d (%d gave up)", len(w.taken), w.want, w.gaveUp)
		}
		return w.eachTally()
	}
	forgiven := int(w.table.counters.Forgiven.Load())
	switch n := len(w.taken); {
	case w.nearlyFull && n > w.want+forgiven:
		return fmt.Sprintf("%d takes, %d forgiven, but %d allowed", n, forgiven, w.want)
	case w.aging:
		// each has looked at when they were
	case !w.nearlyFull && (n > w.want || n < w.want-w.gaveUp):
		return fmt.Sprintf("%d takes, should be %d (%d gave up)", n, w.want, w.gaveUp)
	case !w.nearlyFull && forgiven > 0:
		return "forgiven without need"
	}
	for _, last := range w.taken {
		if w.nearlyFull || last.at+hour <= w.now {
			continue
		}
		e := w.table.View().Look(w.table.hash(last.key), last.key)
		if e == nil || w.table.terms.Load().Policy.FreshAt(e.Word()) != last.at+hour {
			return fmt.Sprintf("the take of key %s is forgotten", last.key)
		}
	}
	return ""
}
