package limits

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Recorder is a limiter that writes each call to a file, for `ral replay` and `ral suggest`. A line has the instant,
// the verb, the verdict, the units and the key, hashed unless RecordConfig.ShowKeys. The end of a grant is a line of its
// own. Looks, and calls that return an error, are not written. Call Record to make a Recorder, and Close to end it.
// Its methods are safe for concurrent use.
//
// A line has no key if the key does not equal itself or cannot be hashed, as limiters do not record such keys either.
//
// The instant of a line is the begin of the call or, if the call waited, its turn. So calls of a key that overlap may
// be written in another order than they were decided in. If SetPolicy changes the limit during a call, the call's line
// is behind the line of the change, although the earlier limit may have decided. No call waits for the disk: if the disk is too slow,
// lines are lost and counted.
//
// Refund, Reset, Block and SetPolicy call the methods of an engine and record the calls. A program must
// not call them on the engine itself, or the record lacks the calls. If the limiter has no such method,
// they do nothing, or return an error.
type Recorder[K comparable] struct {
	limiter Limiter[K]
	// manual is nil if the limiter is neither an engine nor an engine.Tiered.
	manual manual[K]
	// settable is nil if the limiter has no limit that can be set.
	settable settable
	seed     maphash.Seed
	record   *record

	// SetPolicy locks setting. version is odd while SetPolicy runs, and each run makes it greater by 2.
	setting sync.Mutex
	version atomic.Uint64
	// known has the limit of the record's last line about the limit, and the time of that line.
	known struct {
		sync.Mutex
		limit policy.Policy
		since time.Duration
	}
}

// settable is implemented by engine.Engine, which this package cannot import. Only a settable limiter
// can change its limit while it is recorded.
type settable interface {
	SetPolicy(p policy.Policy) error
	Limit() policy.Policy
}

// manual is implemented by engine.Engine and engine.Tiered, which this package cannot import.
// manual has the methods by which an operator changes a key.
type manual[K comparable] interface {
	Refund(key K, n int64) policy.Decision
	Reset(key K) bool
	Block(key K, d time.Duration) error
}

// Record returns a Recorder of a limiter. The error is a *policy.FieldError, or an error of the file.
func Record[K comparable](limiter Limiter[K], config RecordConfig) (*Recorder[K], error) {
	if shape.IsNil(limiter) {
		return nil, &policy.FieldError{Of: "limits.Record", Field: "l", Value: "nil", Want: "a limiter, such as engine.New returns"}
	}
	epoch := time.Now()
	if e, ok := limiter.(interface{ Epoch() time.Time }); ok {
		epoch = e.Epoch()
	}
	recorder := &Recorder[K]{limiter: limiter, seed: maphash.MakeSeed()}
	recorder.manual, _ = limiter.(manual[K])
	limit := "start"
	if recorder.settable, _ = limiter.(settable); recorder.settable != nil {
		recorder.known.limit = recorder.settable.Limit()
		limit = strconv.Quote(recorder.known.limit.String())
	}
	var err error
	if recorder.record, err = openRecord(config, epoch, limit); err != nil {
		return nil, err
	}
	return recorder, nil
}

// add writes a line with the key, as its text or its hash.
func (r *Recorder[K]) add(verb string, since time.Duration, status int, units int64, number uint64, key K) {
	line := recordLine{since: since, verb: verb, status: status, units: units, number: number, hash: r.hash(key)}
	if r.record.config.ShowKeys && line.hash != 0 {
		if line.hash, line.key = 0, strconv.Quote(fmt.Sprint(key)); len(line.key) > recordKey {
			line.key = ""
		}
	}
	r.record.add(line)
}

// hash returns the hash of a key. It is 0 for a key that does not equal itself or cannot be hashed.
func (r *Recorder[K]) hash(key K) (hash uint64) {
	defer func() { _ = recover() }() // comparing a slice inside of an interface panics, as hashing does
	if key == key {                  //nolint:gocritic // false for NaN
		hash = maphash.Comparable(r.seed, key)
	}
	return hash
}

// noteLimit writes a line if the limit has changed since the last such line. It returns the time of the last line
// about the limit.
func (r *Recorder[K]) noteLimit() time.Duration {
	r.known.Lock()
	defer r.known.Unlock()
	if limit := r.settable.Limit(); !shape.Same(limit, r.known.limit) {
		change := strconv.Quote(r.known.limit.String() + limitArrow + limit.String())
		r.known.limit, r.known.since = limit, r.record.now()
		r.record.add(recordLine{since: r.known.since, verb: "limit", key: change})
	}
	return r.known.since
}

// took writes the line of a call, unless the call was a look. since and version were read when the call began. If
// SetPolicy ran during the call, took assumes that the limit in force now decided, since a call on a new key is decided
// at its end. The line then stands behind that limit's line.
func (r *Recorder[K]) took(since time.Duration, version uint64, key K, n int64, answer *Answer, number uint64) {
	if version%2 > 0 || version != r.version.Load() {
		since = max(since, r.noteLimit())
	}
	status := statusRefused
	if answer.Allowed {
		status = statusAdmitted
	}
	if n > 0 {
		r.add("take", since, status, n, number, key)
	}
}

// Admit implements Limiter. It allocates no more than the Admit of the recorded limiter.
func (r *Recorder[K]) Admit(ctx context.Context, key K, n int64) (Answer, error) {
	version, since := r.version.Load(), r.record.now()
	answer, err := r.limiter.Admit(ctx, key, n)
	if err == nil {
		r.took(since, version, key, n, &answer, 0)
	}
	return answer, err
}

// Hold implements Limiter. It allocates no more than the Hold of the recorded limiter.
func (r *Recorder[K]) Hold(ctx context.Context, call Call[K]) (Grant, error) {
	version, since := r.version.Load(), r.record.now()
	grant, err := r.limiter.Hold(ctx, call)
	if err != nil {
		return grant, err
	}
	number := uint64(0)
	if grant.State.Settler != nil {
		number = r.record.numbers.Add(1)
		grant.State.record, grant.State.number = r.record, number
	}
	if grant.Wait > 0 && call.Patience > 0 && !call.NoWait {
		// The units were taken at the call's turn, unless a limit such as a policy.Queue promised the turn
		// at the call's begin.
		if limit := r.limiter.LimitFor(call.Key); limit == nil || !limit.Delays() {
			since += grant.Wait
		}
	}
	r.took(since, version, call.Key, call.N, &grant.Answer, number)
	return grant, nil
}

// LimitFor implements Limiter.
func (r *Recorder[K]) LimitFor(key K) policy.Policy { return r.limiter.LimitFor(key) }

// Look returns the limiter's look, for AskAll. The look is not written.
func (r *Recorder[K]) Look(call Call[K]) (answer Answer, ok bool) {
	if l, ok := r.limiter.(looker[K]); ok {
		return l.Look(call)
	}
	return answer, false
}

// Remote reports whether the limiter is Remote.
func (r *Recorder[K]) Remote() bool { return isRemote(r.limiter) }

var errNotRecorded = errors.New("ral: the recorded limiter has no such method")

// Refund is engine.Engine.Refund.
func (r *Recorder[K]) Refund(key K, n int64) (decision policy.Decision) {
	if r.manual == nil {
		return decision
	}
	verb, units := "refund", n
	if n < 0 {
		verb, units = "charge", -max(n, -policy.MaxWord)
	}
	r.add(verb, r.record.now(), statusAdmitted, units, 0, key)
	return r.manual.Refund(key, n)
}

// Reset is engine.Engine.Reset.
func (r *Recorder[K]) Reset(key K) bool {
	if r.manual == nil {
		return false
	}
	r.add("reset", r.record.now(), statusAdmitted, 0, 0, key)
	return r.manual.Reset(key)
}

// Block is engine.Engine.Block. A block that fails is not written.
func (r *Recorder[K]) Block(key K, duration time.Duration) error {
	if r.manual == nil {
		return errNotRecorded
	}
	since := r.record.now()
	err := r.manual.Block(key, duration)
	if err == nil {
		r.add("block", since, statusAdmitted, int64(duration), 0, key)
	}
	return err
}

// SetPolicy is engine.Engine.SetPolicy. Each file begins with a line that has the limit. The line of a change has
// the limits before and after the change, and stands where the change took effect. There is no line if the limit
// is the same as before. SetPolicy waits for other calls of SetPolicy.
func (r *Recorder[K]) SetPolicy(limit policy.Policy) error {
	if r.settable == nil {
		return errNotRecorded
	}
	r.setting.Lock()
	defer r.setting.Unlock()
	r.version.Add(1)
	defer r.version.Add(1)
	err := r.settable.SetPolicy(limit)
	r.noteLimit()
	return err
}

// Stats tells how much of the record is missing.
func (r *Recorder[K]) Stats() RecordStats { return r.record.stats() }

// Close writes the last lines, and closes the file, but not the limiter. Later calls are decided and not written.
func (r *Recorder[K]) Close() error { return r.record.close() }
