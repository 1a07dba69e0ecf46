package fleet

import (
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

// Errors of calls. What they return wraps one of them, for errors.Is, or one that all limiters have:
// engine.ErrClosed of a limiter that is closed, engine.ErrNever, engine.ErrDeadline, engine.ErrCrowded and
// engine.ErrCancelled of calls that wait, and limits.ErrBlocked of a key that is blocked.
var (
	// ErrKeyTooLong: a key has at most 64 KiB.
	ErrKeyTooLong = store.ErrKeyTooLong
	// ErrCrossSlot: a cluster keeps the keys of a TakeAll in different places. Config.Tag
	// brings them together.
	ErrCrossSlot = store.ErrCrossSlot
	// ErrOutage: Redis could not be asked, and what was wanted cannot be done without.
	ErrOutage = errors.New("ral: Redis could not be asked")
	// ErrModeUnsupported: Leased mode does not offer this. The text names what.
	ErrModeUnsupported = errors.New("ral: leased mode does not offer this")
	// ErrMisfit: the limit that came with the call, or that Config.PolicyFor chose, is of
	// another family than the limiter's own, so that it does not read its words.
	ErrMisfit = errors.New("ral: this limit is of another family than the limiter's Policy")
	// ErrTooManyLimits: calls brought more limits than a limiter takes.
	ErrTooManyLimits = errors.New("ral: too many different limits came with calls")
	// ErrDifferentClients: the limiters of a TakeAll do not share one client, or do not count time
	// from the same Config.Epoch.
	ErrDifferentClients = errors.New("ral: TakeAll needs limiters that were given the same Client, or one by Via, and the same Epoch")
)

// unsupported is the error of what Leased mode does not offer.
func unsupported(what string) error {
	return fmt.Errorf("%w: %s; use Exact mode", ErrModeUnsupported, what)
}

// ErrStateFile reports that Config.StateFile cannot be used. From New it means that the file
// is in use, damaged or of another limit, or that its folder is missing; the file was left as
// it is. From Health and Close it means that what is to be charged could not be saved.
var ErrStateFile = errors.New("ral: fleet.Config: StateFile: what is to be charged cannot be kept")

// Answer.Err wraps one of these, or what Redis or the network said. Unless it is
// about one key, it also wraps ErrOutage.
var (
	// ErrForeignValue: what Redis holds under the key's name is nothing of this limit's. It
	// is left as it is.
	ErrForeignValue = store.ErrForeignValue
	// ErrBudget: Redis did not answer within Config.Budget. What was asked may be done
	// all the same, and count.
	ErrBudget = guard.ErrBudget
	// ErrBreakerOpen: Redis was not asked, as the last calls failed.
	ErrBreakerOpen = guard.ErrOpen
	// ErrSilent: the breaker is open because Redis answered none of the calls of a while,
	// 200 ms or the budget if that is longer.
	ErrSilent = guard.ErrSilent
	// ErrSlow: it is open because Redis answers, and for a while each answer came after
	// the budget: raise Config.Budget.
	ErrSlow = guard.ErrSlow
	// ErrUnfit: Redis answers, and cannot keep limits now. It is not asked for as long as that lasts.
	// The text says why, and what to do. ErrReadOnly, ErrFull and ErrEvictionPolicy wrap it; so do
	// errors without a name here: Redis is older than 6.2, it refuses writes for want of replicas or a
	// save, or it holds something else under the name by which servers are counted.
	ErrUnfit = store.ErrUnfit
	// ErrReadOnly: the Redis asked is a replica.
	ErrReadOnly = store.ErrReadOnly
	// ErrFull: Redis has no memory left.
	ErrFull = store.ErrFull
	// ErrEvictionPolicy: Redis is set up to drop keys when its memory is full, keys of limits among
	// them, which would forgive what they owe.
	ErrEvictionPolicy = store.ErrEvictionPolicy
	// ErrUncounted: FallbackShare refuses, as nothing tells by how many servers to divide the
	// limit. Config.Servers is 0, and this server has not reached Redis since it started.
	ErrUncounted = errors.New("ral: fleet.Config: Servers is 0 and servers were not counted yet, so that there is no share to go by; " +
		"set Servers to how many there are, or see to it that Redis can be reached when a server starts")
	// ErrLimits: servers of one Name keep different limits, or count time from different
	// epochs. Each admits its own, unless they are of one kind and period; then they share
	// what was used.
	ErrLimits = errors.New("ral: servers of this Name keep different limits")
	// ErrTooManyClients: Redis has as many connections as it accepts.
	ErrTooManyClients = store.ErrTooManyClients
)

// errConnecting is the cause as long as nothing else is known.
var errConnecting = errors.New("not connected yet")

// noAnswer is the error of an exchange with Redis if Config.Outage is to answer instead. Any
// other error ends the call. It stays inside of this package: callers are told the cause.
type noAnswer struct {
	cause error // as Answer.Err has it
	// mayBeDone reports that Redis was asked to change something, and may have done so
	// or do so yet. Only exchanges by askOnce set it.
	mayBeDone bool
}

// Error implements error.
func (e noAnswer) Error() string { return e.cause.Error() }

// mayFallBack returns why Config.Outage is to answer a call for the key, given the error of
// its exchange with Redis. If the call is to end instead, it returns the error that ends it:
// a key that is too long is refused with and without Redis.
func mayFallBack(key string, err error) (why noAnswer, _ error) {
	if !errors.As(err, &why) {
		return why, err
	}
	return why, store.CheckKey(key)
}

// isKeyOrCallError reports whether an error concerns one key or one call, and so says nothing
// about Redis's health.
func isKeyOrCallError(err error) bool {
	return errors.Is(err, store.ErrForeignValue) || errors.Is(err, store.ErrDisagrees) || errors.Is(err, store.ErrContended) ||
		isCallerError(err)
}

// isCallerError reports whether the caller is to blame for an error.
func isCallerError(err error) bool {
	return errors.Is(err, store.ErrKeyTooLong) || errors.Is(err, store.ErrCrossSlot)
}

// isUnfit reports whether Redis answers that it cannot keep limits now. Until it can,
// only the keeper calls it.
func isUnfit(err error) bool {
	return errors.Is(err, store.ErrUnfit)
}

// countsAsFailure reports whether an error counts for the breaker: it is the network's, or one
// of Redis that means nothing here. Other errors of a call are no outage.
func countsAsFailure(err error) bool { return errors.Is(err, store.ErrAsking) }

// notExecuted reports whether a cause means that Redis did not do what it was to do: it
// said so, or was not asked.
func notExecuted(cause error) bool {
	var said *rueidis.RedisError
	return errors.As(cause, &said) || !countsAsFailure(cause) && !errors.Is(cause, ErrBudget) && !errors.Is(cause, store.ErrDisagrees)
}

// asOutage returns the cause that a caller is told.
func asOutage(err error) error {
	if isKeyOrCallError(err) || errors.Is(err, ErrOutage) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutage, err)
}
