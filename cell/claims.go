package cell

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Claim is a key of a cell, for TakeAll. A cell's Claim method makes it.
type Claim interface {
	// place orders claims alike in every call.
	place() (cell, hash uint64)
	same(Claim) bool
	look(n int64) policy.Decision
	// lined tells whether anybody waits for the key.
	lined() bool
	closed() bool
	// grab takes n units at once, uncounted.
	grab(n int64) grabbed
	// await is grab of who waits in the key's line. If there is an error it is a refusal.
	await(ctx context.Context, n int64, patience time.Duration) (grabbed, error)
	count(allowed bool, without *atomic.Uint64)
}

// grabbed is what a claim has taken.
type grabbed struct {
	d    policy.Decision
	held keeper // nil if nothing was taken
	// without is the counter of answers without the key's word, if d is one.
	without *atomic.Uint64
	waited  time.Duration
}

// keeper is a Reservation of any type of key.
type keeper interface{ Keep(n int64) }

type claim[K comparable] struct {
	cell *Cell[K]
	key  K
}

// Claim names a key of this cell for TakeAll.
func (c *Cell[K]) Claim(key K) Claim { return &claim[K]{c, key} }

func (c *claim[K]) place() (uint64, uint64) {
	hash, _ := c.cell.hash(c.key)
	return c.cell.order, hash
}

func (c *claim[K]) same(other Claim) bool {
	o, ok := other.(*claim[K])
	if !ok || o.cell != c.cell {
		return false
	}
	if _, hashed := c.cell.hash(c.key); !hashed {
		return false // comparing it with its like would panic
	}
	return o.key == c.key
}

func (c *claim[K]) look(n int64) policy.Decision {
	return c.cell.look(c.key, &ask{n: n, atOnce: true})
}

func (c *claim[K]) lined() bool { return c.cell.lines.has(c.cell, c.key) }

func (c *claim[K]) closed() bool { return c.cell.closed.Load() }

func (c *claim[K]) grab(n int64) grabbed {
	a := ask{n: n, atOnce: true, exact: true, silent: true}
	r := c.cell.reserve(c.key, &a)
	if !r.Allowed {
		return grabbed{d: r.Decision, without: a.without}
	}
	return grabbed{d: r.Decision, held: held(r), without: a.without}
}

func (c *claim[K]) await(ctx context.Context, n int64, patience time.Duration) (grabbed, error) {
	a := ask{n: n, atOnce: true, exact: true, silent: true}
	r, err := c.cell.acquire(ctx, c.key, &a, patience)
	if err != nil {
		return grabbed{d: c.cell.refusal(c.key, n, err), without: a.without, waited: r.Waited}, err
	}
	return grabbed{d: r.Decision, held: held(r), without: a.without, waited: r.Waited}, nil
}

// held keeps a reservation for later.
func held[K comparable](r Reservation[K]) keeper { return &r }

func (c *claim[K]) count(allowed bool, without *atomic.Uint64) {
	c.cell.report(allowed, without)
}

// Outcome is the answer of TakeAll.
type Outcome struct {
	// Allowed tells whether all claims were met. Otherwise nothing was taken, or it
	// was given back: see TakeAll.
	Allowed bool
	// RetryAfter is 0 if Allowed. Otherwise all claims would be met after this
	// long, if nobody else takes; policy.Never if one never will.
	RetryAfter time.Duration
	// Binding is the index of the claim that decided: of those refused the one that
	// has to wait longest, of those allowed the one with the least share of its
	// limit left. -1 if there are no claims.
	Binding int
	// Decisions has one for each claim, in their order. Those not Allowed refused. Under
	// a policy.Queue, Remaining counts the places in the queue, though nobody is put
	// there: while anything is taken, TakeAll refuses.
	Decisions []policy.Decision
	// Waited is how long AcquireAll stood in line; 0 if it did not.
	Waited time.Duration

	held []holding
}

// holding is what was taken from a key, for so many claims on it.
type holding struct {
	keeper
	claims int64
}

// Keep ends an outcome that is Allowed with n units of each claim used, and gives back
// the others to where each came from: see Reservation.Keep. Of a key that stands twice
// among the claims it keeps 2*n. It is for one goroutine, and the first call counts.
// Keep(0) is as if nothing had been taken, where nobody else took since.
func (o *Outcome) Keep(n int64) {
	for _, h := range slices.Backward(o.held) {
		h.Keep(times(max(n, 0), h.claims))
	}
}

// times is n*count, or the largest number if that is less. Neither is below 0.
func times(n, count int64) int64 {
	if n > math.MaxInt64/count {
		return math.MaxInt64
	}
	return n * count
}

// TakeAll takes n units from every claim or from none: by address and by user and
// from everybody together. No limit is ever exceeded, not for a moment. It looks first,
// so that nearly always nothing is taken by a call that is refused; if somebody else
// is faster in between, what had been taken is given back as by Reservation.Cancel: a
// call which comes at that moment may be refused by a limit that has room the next,
// and a policy.Queue or WarmingUp behind which somebody came keeps what it cannot give
// back.
//
// A claim that stands twice is charged twice. Without claims the call is allowed.
// n == 0 looks without taking; n < 0, and n above a limit, are refused with
// policy.Never. A key that cannot be recorded is answered as for Take. A policy that
// would make the call wait refuses it here. A call that is allowed is counted once
// for each key, one that is refused once for each key that refuses. A nil Claim
// panics.
func TakeAll(n int64, claims ...Claim) Outcome {
	var room [MaxEach]claimed
	var places [MaxEach]int
	j := join(n, claims, room[:0], places[:0])
	j.allowed = j.look() && (n <= 0 || j.grab(nobody))
	return j.outcome()
}

// AcquireAll is TakeAll that waits up to patience for all claims to be met. It stands in
// the line of the key that refuses it longest or, if none does, of one for which somebody
// waits already, as Acquire does, and so behind those who came before and no longer than
// is of use; when its turn has come it takes from the others at once. If one of them has
// no room by then, it gives back what it has, as by Reservation.Cancel, and goes to that
// one's line. So those who wait for one key are served in their order, and those who wait
// for one after the other may be overtaken on the way.
//
// What it gives back so is given back as by Cancel: where engine.PolicyFor chooses a
// limit that does not count in windows, nothing is if others have taken since, so that in
// a busy line a call that is refused in the end may count for that limit.
//
// If there is an error, it is one of those of Acquire, and the Outcome, which is not
// Allowed then, tells how all claims stand; ErrClosed if any engine is closed when it is
// called. The claim that it stood in line for is refused then, as by Acquire, and if the
// context was over already while all had room, the first. A call is counted once, as for
// TakeAll.
func AcquireAll(ctx context.Context, n int64, patience time.Duration, claims ...Claim) (Outcome, error) {
	var room [MaxEach]claimed
	var places [MaxEach]int
	j := join(n, claims, room[:0], places[:0])
	began := time.Now()
	j.allowed = j.look()
	ended, closed := ctx.Err() != nil, j.find(Claim.closed)
	at := j.find(Claim.lined)
	if !ended && closed == nobody && (n == 0 || j.allowed && at == nobody && j.grab(nobody)) {
		return j.outcome(), nil
	}
	j.allowed = false
	// Whoever is refused by a limit of his own waits for that, and holds up nobody in the
	// line of one that he shares with others.
	if late := j.last(); late != nobody {
		at = late
	}
	if closed != nobody {
		at = closed // which says so
	}
	switch {
	case len(claims) == 0:
		return j.outcome(), cancelled(ctx)
	case at == nobody:
		at = 0 // which says that the context is over
	}
	for {
		k := &j.keys[at]
		left := max(patience, 0)
		if left < forever {
			left = max(left-time.Since(began), 0)
		}
		var err error
		k.grabbed, err = k.claim.await(ctx, k.n, left)
		j.waited += k.waited
		if err != nil {
			j.refresh(at)
			return j.outcome(), err
		}
		if j.allowed = j.grab(at); j.allowed {
			k.d = k.claim.look(0) // it may have taken ahead of its turn
			return j.outcome(), nil
		}
		at = j.last()
	}
}

// joint is a call on several claims.
type joint struct {
	n       int64
	keys    []claimed // in the order of the claims
	order   []int     // of those that stand for a key, in which they are taken from
	allowed bool
	waited  time.Duration
}

// claimed is a claim, or all claims on its key if it is the first of them.
type claimed struct {
	claim      Claim
	first      int   // of the claims on the key
	claims     int64 // how many those are
	n          int64 // units that all of them ask for
	cell, hash uint64
	grabbed
}

// nobody is the place of no claim.
const nobody = -1

// join brings claims on one key together, and all into an order that is the same
// for every call. Two calls that want the same keys then meet at the first, where
// one of them is refused with reason, instead of each holding what the other wants.
func join(n int64, claims []Claim, keys []claimed, order []int) joint {
	for i, c := range claims {
		keys = append(keys, claimed{claim: c, first: i})
		first := 0
		for !keys[first].claim.same(c) && first < i {
			first++
		}
		k := &keys[i]
		if k.first = first; first == i {
			k.cell, k.hash = c.place()
			order = append(order, i)
		}
		keys[first].claims++
	}
	for _, at := range order {
		k := &keys[at]
		if k.n = n; n > 0 {
			k.n = times(n, k.claims)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(keys[a].cell, keys[b].cell), cmp.Compare(keys[a].hash, keys[b].hash))
	})
	return joint{n: n, keys: keys, order: order}
}

// look asks all keys, and tells whether all would allow it. It keeps a call that is
// refused from writing, nearly always.
func (j *joint) look() bool {
	all := true
	for _, at := range j.order {
		k := &j.keys[at]
		k.d = k.claim.look(k.n)
		all = all && k.d.Allowed
	}
	return all
}

// find returns a key of which that is true.
func (j *joint) find(is func(Claim) bool) int {
	for _, at := range j.order {
		if is(j.keys[at].claim) {
			return at
		}
	}
	return nobody
}

// last returns the key that refuses and has to be waited for longest.
func (j *joint) last() int {
	last := nobody
	for _, at := range j.order {
		if d := j.keys[at].d; !d.Allowed && (last == nobody || d.RetryAfter > j.keys[last].d.RetryAfter) {
			last = at
		}
	}
	return last
}

// grab takes from each key, but from the one that is held already, and tells whether all
// allowed it. If one refuses nothing is held.
func (j *joint) grab(has int) bool {
	refused, all := nobody, false
	defer func() { // also if a policy panics
		if all {
			return
		}
		for _, at := range slices.Backward(j.order) {
			if k := &j.keys[at]; k.held != nil {
				k.held.Keep(0)
				k.held = nil
			}
		}
		if refused != nobody {
			j.refresh(refused)
		}
	}()
	for _, at := range j.order {
		if at == has {
			continue
		}
		k := &j.keys[at]
		if k.grabbed = k.claim.grab(k.n); !k.d.Allowed {
			refused = at
			return false
		}
	}
	all = true
	return true
}

// refresh looks at all keys but the one that has refused.
func (j *joint) refresh(refused int) {
	for _, at := range j.order {
		if k := &j.keys[at]; at != refused {
			k.d, k.without = k.claim.look(k.n), nil
		}
	}
}

// outcome counts the call, and tells what came of it.
func (j *joint) outcome() Outcome {
	out := Outcome{Allowed: j.allowed, Binding: nobody, Waited: j.waited, Decisions: make([]policy.Decision, len(j.keys))}
	if j.allowed && j.n > 0 {
		out.held = make([]holding, 0, len(j.order))
	}
	for _, at := range j.order {
		k := &j.keys[at]
		switch {
		case j.n != 0 && j.allowed == k.d.Allowed:
			k.claim.count(j.allowed, k.without)
		case !j.allowed && k.d.Allowed:
			k.d = k.claim.look(0) // which has taken nothing
		}
		if k.held != nil {
			out.held = append(out.held, holding{k.held, k.claims})
		}
	}
	for i := range j.keys {
		out.Decisions[i] = j.keys[j.keys[i].first].d
	}
	out.bind()
	return out
}

// bind finds the claim that decided.
func (o *Outcome) bind() {
	share := math.Inf(1)
	for i, d := range o.Decisions {
		switch {
		case o.Allowed:
			if s := float64(d.Remaining) / float64(max(d.Limit, 1)); s < share {
				share, o.Binding = s, i
			}
		case !d.Allowed && d.RetryAfter > o.RetryAfter:
			o.RetryAfter, o.Binding = d.RetryAfter, i
		}
	}
}
