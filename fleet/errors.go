package fleet

import (
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

// Errors of calls, for errors.Is. Calls also return engine.ErrClosed, limits.ErrBlocked and, if
// they wait, engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded or engine.ErrCancelled.
var (
	// ErrKeyTooLong: the key has more than 64 KiB.
	ErrKeyTooLong = store.ErrKeyTooLong
	// ErrCrossSlot: the keys of a TakeAll are in different slots of a cluster: see Config.Tag.
	ErrCrossSlot = store.ErrCrossSlot
	// ErrOutage: Redis could not be asked, and there is no fallback.
	ErrOutage = errors.New("ral: Redis could not be asked")
	// ErrModeUnsupported: Leased mode does not offer this; the text names it.
	ErrModeUnsupported = errors.New("ral: leased mode does not offer this")
	// ErrMisfit: the limit of the call, or of Config.PolicyFor, is of another family than the
	// limiter's own and does not read its words.
	ErrMisfit = errors.New("ral: this limit is of another family than the limiter's Policy")
	// ErrTooManyLimits: calls brought more than 1,024 different limits.
	ErrTooManyLimits = errors.New("ral: too many different limits came with calls")
	// ErrDifferentClients: the limiters of a TakeAll differ in client or Config.Epoch.
	ErrDifferentClients = errors.New("ral: TakeAll needs limiters with the same Client, equal options in Redis, or one by Via, and with the same Epoch")
)

func unsupported(what string) error {
	return fmt.Errorf("%w: %s; use Exact mode", ErrModeUnsupported, what)
}

// ErrStateFile reports that Config.StateFile cannot be used. New returns the error if the file,
// left as it is, is in use, damaged or of another limit, or its folder is missing. Health and Close
// return the error if units to be charged could not be saved.
var ErrStateFile = errors.New("ral: fleet.Config: StateFile: uncharged units cannot be kept")

// Answer.Err wraps one of these, or the error of Redis or the network. It also wraps ErrOutage,
// unless it is about a key.
var (
	// ErrForeignValue: Redis holds, and keeps, a foreign value under the key's name.
	ErrForeignValue = store.ErrForeignValue
	// ErrBudget: no answer within Config.Budget. The request may still be done, and count.
	ErrBudget = guard.ErrBudget
	// ErrBreakerOpen: Redis was not asked, since the last calls failed.
	ErrBreakerOpen = guard.ErrOpen
	// ErrSilent: the breaker is open. Redis answered nothing for 200 ms, or the budget if longer.
	ErrSilent = guard.ErrSilent
	// ErrSlow: the breaker is open. For a while all answers came late: raise Config.Budget.
	ErrSlow = guard.ErrSlow
	// ErrUnfit: Redis answers, but cannot keep limits, and is not asked until that changes. The
	// text says why, and what to do. ErrReadOnly, ErrFull and ErrEvictionPolicy wrap it. So do
	// unnamed errors: Redis is older than 6.2, refuses writes for want of replicas or a save, or
	// holds something else under the name by which servers are counted.
	ErrUnfit = store.ErrUnfit
	// ErrReadOnly: the Redis asked is a replica.
	ErrReadOnly = store.ErrReadOnly
	// ErrFull: Redis has no memory left.
	ErrFull = store.ErrFull
	// ErrEvictionPolicy: Redis may drop keys when its memory is full, which would forgive debts.
	ErrEvictionPolicy = store.ErrEvictionPolicy
	// ErrEmptied: under a limit in flight, Redis has lost its data, or no server of this Name has asked it for
	// two terms. Redis admits no call for a term, in which all servers confirm the units that they have.
	ErrEmptied = errors.New("ral: Redis had no record of units in flight, and admits no call until all servers have confirmed theirs, for Config.Term (10s by default)")
	// ErrUncounted: FallbackShare refuses, since the number of servers is unknown. Config.Servers
	// is 0, and this server has not reached Redis since its start.
	ErrUncounted = errors.New("ral: fleet.Config: Servers is 0 and servers were not counted yet, so that there is no share to go by; " +
		"set Servers to how many there are, or see to it that Redis can be reached when a server starts")
	// ErrLimits: servers of one Name keep different limits, or count time from different epochs.
	// Each admits its own limit; limits of the same kind and period share the used units.
	ErrLimits = errors.New("ral: servers of this Name keep different limits")
)

var errConnecting = errors.New("not connected yet")

// errCutOff is why a server asks Redis for no units in flight: Redis may have forgotten units that
// this server has.
var errCutOff = errors.New("this server has not confirmed its units in flight since it was cut off from Redis")

// noAnswer is the error of a link that passes a call on, and of an exchange with Redis that the next
// link is to answer instead. noAnswer is never wrapped, and never told to callers: their contexts
// may end with an error of another call. Any other error ends the call.
type noAnswer struct {
	// cause is Answer.Err of the fallback, or nil if Redis was not asked yet.
	cause error
	// mayBeDone reports that Redis may have made the change asked for, or may still make that
	// change. askOnce sets mayBeDone.
	mayBeDone bool
}

func (e noAnswer) Error() string { return e.cause.Error() }

// forCaller returns an error as callers get it, a noAnswer's cause, and reports whether it is a noAnswer.
func forCaller(err error) (cause error, passed bool) {
	if why, passes := err.(noAnswer); passes { //nolint:errorlint // nothing wraps it
		return why.cause, true
	}
	return err, false
}

// isKeyOrCallError reports whether an error is about a key or call, not about Redis's health.
func isKeyOrCallError(err error) bool {
	return errors.Is(err, store.ErrForeignValue) || errors.Is(err, store.ErrDisagrees) || errors.Is(err, store.ErrContended) ||
		isCallerError(err)
}

func isCallerError(err error) bool {
	return errors.Is(err, store.ErrKeyTooLong) || errors.Is(err, store.ErrCrossSlot)
}

// isUnfit reports whether Redis cannot keep limits now. Until then, only the keeper asks Redis.
func isUnfit(err error) bool {
	return errors.Is(err, store.ErrUnfit)
}

// countsAsFailure reports whether an error counts for the breaker: the error is the network's, or a
// reply that means nothing here.
func countsAsFailure(err error) bool { return errors.Is(err, store.ErrAsking) }

// notExecuted reports whether Redis did not do its task: Redis said so, or was not asked.
func notExecuted(cause error) bool {
	var said *rueidis.RedisError
	return errors.As(cause, &said) || !countsAsFailure(cause) && !errors.Is(cause, ErrBudget) && !errors.Is(cause, store.ErrDisagrees)
}

func asOutage(err error) error {
	if isKeyOrCallError(err) || errors.Is(err, ErrOutage) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutage, err)
}
