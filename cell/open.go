package cell

import (
	"runtime"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// takeNew decides a call on a key that has no live entry in the map, or has a word that Choke
// leaves to takeEntry. It decides whether there would be anything to record, opens an entry, and
// takes from that.
func (c *Cell[K]) takeNew(hash uint64, hashed bool, key K, now policy.Instant, request *request, decision *policy.Decision, receipt *Receipt) Basis {
	opening := c.newOpening(hash, hashed, key, now)
	for {
		entry, outcome := opening.next(request)
		if entry == nil {
			*decision = outcome.Decision
			return outcome.Basis
		}
		basis, alive := c.takeEntry(entry, hash, opening.now, request, decision, receipt)
		if opening.backlogged {
			// The writer is far behind.
			runtime.Gosched()
		}
		switch {
		case !alive:
		case c.endedMeanwhile() && request.n != 0 && decision.Allowed:
			// Close may have missed this entry, so the call is refused. If Close did read it, the refused
			// call stays charged.
			outcome := c.unavailableAnswer(request, *decision, false)
			*decision = outcome.Decision
			if receipt != nil {
				*receipt = Receipt{}
			}
			return outcome.Basis
		default:
			return basis
		}
	}
}

// opening is the attempt to find or make an entry for a key.
type opening[K comparable] struct {
	cell       *Cell[K]
	hash       uint64
	key        K
	recordable bool
	// now is when the call takes, later than its begin if it waited.
	now policy.Instant
	// backlogged means that the writer is far behind.
	backlogged bool
	room       roomWait
}

func (c *Cell[K]) newOpening(hash uint64, hashed bool, key K, now policy.Instant) opening[K] {
	return opening[K]{
		cell: c, hash: hash, key: key, now: now,
		// A key that does not equal itself would be opened anew by every call.
		recordable: hashed && key == key, //nolint:gocritic // false for NaN
		room:       roomWait{seam: c.seam},
	}
}

// next returns an entry to take from, or nil and the answer. Call it again if the entry was dead.
func (op *opening[K]) next(request *request) (*table.Entry[K], outcome) {
	cell := op.cell
	for {
		closed := cell.closed.Load()
		var decision policy.Decision
		next := request.decide(cell.view.Terms(), 0, op.now, &decision)
		records := decision.Allowed && request.n != 0 && (!request.charge || next != 0)
		// Most calls can record something: they look and open at once.
		if !records || closed || !op.recordable || !cell.writing() {
			if op.recordable && !closed {
				if entry := cell.view.Look(op.hash, op.key); entry != nil {
					return entry, outcome{}
				}
			}
			if !records {
				basis := cell.basis(request.limit, &decision)
				basis.lost = !op.recordable
				return nil, outcome{Decision: decision, Basis: basis}
			}
			return nil, cell.unavailableAnswer(request, decision, true)
		}
		entry, status := op.open()
		if entry != nil {
			return entry, outcome{}
		}
		if outcome, answered := op.noRoom(request, decision, status); answered {
			return nil, outcome
		}
	}
}

// open finds the key's entry or lands a new entry, and has the writer file it, before the take: a
// policy that panics leaves nothing behind. The entry is nil if there is no room, or if that is
// uncertain.
func (op *opening[K]) open() (*table.Entry[K], table.Status) {
	cell := op.cell
	entry, status := cell.view.Open(op.hash, op.key)
	op.backlogged = status == table.Backlogged
	if status == table.Landed && !cell.queue.TrySend(table.FileCommand[K](op.hash, op.now)) {
		cell.lostFiling(op.hash, op.now)
		op.backlogged = true
	}
	return entry, status
}

// lostFiling leaves an entry in the nursery because the queue was full. The writer looks for such
// entries once the queue is empty. If it already has, the second send wakes it.
func (c *Cell[K]) lostFiling(hash uint64, now policy.Instant) {
	c.view.NoteLostFiling()
	c.seam.Step("stray: told")
	c.queue.TrySend(table.FileCommand[K](hash, now))
	c.seam.Step("stray: woken")
}

// noRoom answers for a key without room in a full table, as configured, or waits for room. decision is the
// limit's answer to an unused key.
func (op *opening[K]) noRoom(request *request, decision policy.Decision, status table.Status) (o outcome, answered bool) {
	cell := op.cell
	// The writer may find out meanwhile that every key is firm, or in use.
	firm := cell.view.Firm(op.now)
	switch {
	// Close leaves no places behind.
	case status != table.Full || cell.closed.Load():
	case firm && cell.view.Terms().Occupier == nil:
		return cell.unavailableAnswer(request, decision, false), true
	case cell.whenFull == AdmitNew:
		return cell.withoutWord(request, decision, true, cell.idle, full), true
	// If the table is firm, every key is in use.
	case (firm || cell.whenFull == RefuseNew) && !request.noRoomWait:
		return cell.withoutWord(request, decision, false, cell.idle, full), true
	case firm || cell.whenFull == RefuseNew:
	// The request is sent again from time to time, since a command may be lost with a writer.
	case op.room.rounds%roomRounds == 0 || op.room.rounds > yields:
		cell.queue.TrySend(table.RoomCommand(op.key, op.now))
	}
	if request.noRoomWait {
		decision = policy.Decision{Limit: decision.Limit, RetryAfter: min(cell.openTimeout, roomPause)}
		return outcome{Decision: decision, Basis: Basis{reason: full}}, true
	}
	if !op.room.next(cell.openTimeout) {
		return cell.unavailableAnswer(request, decision, false), true
	}
	// The call has waited, and its take begins now.
	op.now = max(op.now, cell.now())
	return o, false
}

// unavailableAnswer is the answer without a writer. lost means that the key can never be recorded.
func (c *Cell[K]) unavailableAnswer(request *request, decision policy.Decision, lost bool) outcome {
	outcome := c.withoutWord(request, decision, !c.refuseUnfiled && !c.endedMeanwhile(), c.openTimeout, unavailable)
	outcome.lost = lost
	return outcome
}

// endedMeanwhile reports whether the cell was closed and admits no calls. Check it after a word's
// swap: the last words are read after closing, so a call that finds the cell open is in them.
func (c *Cell[K]) endedMeanwhile() bool { return c.refuseClosed && c.closed.Load() }

// withoutWord answers for a key without an entry, with decision for an unused key. retry is a guess. It
// refuses a charge: an allowed charge would be taken for recorded.
func (c *Cell[K]) withoutWord(
	request *request, decision policy.Decision, admit bool, retry time.Duration, why missing,
) outcome {
	if !admit || request.charge {
		decision = policy.Decision{Limit: decision.Limit, RetryAfter: min(retry, policy.Never-1)}
	}
	return outcome{Decision: decision, Basis: Basis{reason: why}}
}

// roomWait waits for room in a full table. The first waits yield, as the writer may be behind. Later
// waits sleep.
type roomWait struct {
	rounds int
	since  time.Time
	seam   seam.Seam
}

const (
	yields = 64
	// roomRounds is the number of yields between requests for room.
	roomRounds = 16

	// roomPause is the time between requests for room by the head of a line.
	roomPause = 10 * time.Millisecond

	minSleep = 20 * time.Microsecond
	maxSleep = time.Millisecond
)

// next waits a little. It returns false when the waits have reached limit.
func (w *roomWait) next(limit time.Duration) bool {
	if w.rounds == 0 {
		w.since = time.Now()
	}
	w.rounds++
	left := limit - time.Since(w.since)
	if left <= 0 {
		return false
	}
	pause := min(left, maxSleep, minSleep<<min(max(w.rounds-yields, 0), 8))
	if w.rounds <= yields {
		// The yield may take long if many other goroutines run.
		w.seam.Yield("open: waits", nil)
	} else {
		w.seam.Sleep("open: waits", pause)
	}
	return true
}
