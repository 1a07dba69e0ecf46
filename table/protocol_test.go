package table

import (
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A world is a table with a few callers and a writer, all of them processes of an
// explorer. The table is the real one. The callers do what package cell does and
// the writer does what package engine does, in as many words as it takes.
//
// After each step and at the end of each schedule these hold:
//
//  1. A key has at most one entry that is landed or filed.
//  2. Such an entry is in its slot or in the map: a caller who looks for the key
//     finds it.
//  3. There are never more entries than MaxKeys.
//  4. The limit of each key is one take an hour, and no two takes of a key are
//     nearer than that, unless the key was forgiven in between.
//
// And when everybody has ended and the writer has settled:
//
//  5. Who was not refused was admitted: there were as many takes as the scenario
//     says.
//  6. The takes are still in the word of the entry.
//  7. Map, index and count of entries agree, and the nursery is empty: whatever
//     is dead has left.
type world struct {
	*explorer
	table *Table[string]
	now   policy.Instant

	queue   []func() // what callers have sent
	script  []func() // what the writer does besides, in this order, at any time
	hand    func()   // what the writer was doing when it was killed
	attempt int
	deaths  int // how often the writer may still be killed
	killed  bool
	losses  int // how many commands may still be lost
	twice   bool
	crowded bool // MakeRoom may forgive
	aging   bool // time passes

	calling int
	resting bool // the writer has nothing to do
	gaveUp  int
	seen    []*Entry[string]
	taken   []taken
	want    int // takes there should be
}

type taken struct {
	key string
	at  policy.Instant
}

const hour = policy.Instant(time.Hour)

// killed is what the writer panics with when the schedule has it killed.
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
		// What a full table counts is of interest only to full tables.
		if point != "reserve: counted" || w.crowded {
			x.step(point)
		}
	}
	w.table.hasher = func(key string) uint64 { return hashes[key] }
	return w
}

func (w *world) fault(point string) {
	w.step(point)
	if w.current != nil && w.deaths > 0 && w.choose(2) == 1 {
		w.deaths--
		w.killed = true
		panic(killed{})
	}
}

// caller adds a process that takes once for each of the keys.
func (w *world) caller(keys ...string) {
	w.calling++
	w.spawn(fmt.Sprintf("caller %d %v", w.calling, keys), func() {
		for _, key := range keys {
			w.call(key)
		}
		w.calling--
	})
}

// call is cell.Choke on a key. That looks the key up first and opens it only if
// that finds nothing; as looking changes nothing, and Open begins with another
// look, callers go to Open at once here, and there are fewer schedules.
func (w *world) call(key string) {
	view, hash := w.table.View(), w.table.hash(key)
	now := w.now
	for patience := 3; patience > 0; {
		e, status := view.Open(hash, key)
		if status == Busy {
			places := &w.table.places
			w.await("call: busy", func() bool {
				return places.word.Load() < uncertain || places.taken() < w.table.maxKeys
			})
			continue
		}
		if status == Full {
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

// peeker adds a process that looks for a key once it was taken from.
func (w *world) peeker(key string) {
	w.calling++
	w.spawn("peeker", func() {
		w.await("peek: begin", func() bool { return len(w.taken) > 0 || w.calling == 1 })
		if w.table.View().Look(w.table.hash(key), key) == nil {
			panic("a key that was taken from is not found")
		}
		w.calling--
	})
}

// takeFrom returns false if the entry is dead.
func (w *world) takeFrom(e *Entry[string], now policy.Instant) bool {
	for {
		w.step("take: read")
		word := e.Word()
		state, alive := State(word)
		if !alive {
			return false
		}
		next, d := w.table.policy.Take(state, now, 1, 0)
		if !d.Allowed {
			return true
		}
		w.step("take: advance")
		if e.Advance(word, next) {
			w.taken = append(w.taken, taken{e.key, now})
			return true
		}
	}
}

// file sends the command to file an entry, which may be lost.
func (w *world) file(e *Entry[string], now policy.Instant) {
	if w.losses > 0 && w.choose(2) == 1 {
		w.losses--
		w.table.View().Stray()
		return
	}
	command := func() { w.table.Apply(FileCommand(e, now)) }
	w.send(command)
	if w.twice {
		w.send(command)
	}
}

func (w *world) send(command func()) {
	w.queue = append(w.queue, command)
	w.resting = false
}

// writer adds the process of the writer, who is started again when killed.
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
			}
			w.hand, w.attempt = nil, 0
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
	return func() { w.table.Apply(FileCommand(e, w.now)) }
}

// landed opens a key and takes once, before the processes begin; the writer has
// yet to file it.
func (w *world) landed(key string) { w.call(key) }

// known opens a key, takes once and files it, before the processes begin.
func (w *world) known(key string) *Entry[string] {
	w.call(key)
	w.queue[0]()
	w.queue = nil
	return w.table.find(w.table.hash(key), key)
}

// each is what holds after every step.
func (w *world) each() string {
	for i := range w.table.nursery {
		for n := w.table.nursery[i].Load(); n != nil; n = n.next.Load() {
			if !slices.Contains(w.seen, n.entry) {
				w.seen = append(w.seen, n.entry)
			}
		}
	}
	for i, e := range w.seen {
		if e.Word() > policy.MaxWord {
			continue
		}
		for _, other := range w.seen[:i] {
			if other.key == e.key && other.Word() <= policy.MaxWord {
				return fmt.Sprintf("key %s has two entries", e.key)
			}
		}
		if hash := w.table.hash(e.key); nodeOf(w.table.slotOf(hash), e) == nil && !w.filed(hash, e) {
			return fmt.Sprintf("the entry of key %s can not be found", e.key)
		}
	}
	if n := w.table.places.taken(); n < 0 || n > w.table.maxKeys {
		return fmt.Sprintf("%d entries", n)
	}
	if n := len(w.taken); n > 0 && !w.crowded {
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

func (w *world) filed(hash uint64, e *Entry[string]) bool {
	s := w.table.shards[w.table.shardOf(hash)].Load()
	if s == nil {
		return false
	}
	at, _ := s.Load(hash)
	for at != nil && at != e {
		at = at.next.Load()
	}
	return at == e
}

// end is what holds when everybody has ended.
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
	forgiven := int(w.table.counters.Forgiven.Load())
	switch n := len(w.taken); {
	case w.crowded && n > w.want+forgiven:
		return fmt.Sprintf("%d takes, %d forgiven, but %d allowed", n, forgiven, w.want)
	case w.aging:
		// each has looked at when they were
	case !w.crowded && (n > w.want || n < w.want-w.gaveUp):
		return fmt.Sprintf("%d takes, should be %d (%d gave up)", n, w.want, w.gaveUp)
	case !w.crowded && forgiven > 0:
		return "forgiven without need"
	}
	for _, last := range w.taken {
		if w.crowded || last.at+hour <= w.now {
			continue
		}
		e := w.table.View().Look(w.table.hash(last.key), last.key)
		if e == nil || w.table.policy.FreshAt(e.Word()) != last.at+hour {
			return fmt.Sprintf("the take of key %s is forgotten", last.key)
		}
	}
	return ""
}
