// Package linear checks that Ral is linearizable, key by key: goroutines that run at the
// same time get the answers that they could have got one after the other.
//
// A [Workload] has goroutines call every verb on a few keys at a time, while keys are
// evicted and come back and the writer is killed, and notes each call with its answer.
// [Check] has porcupine look for an order of a key's calls in which each begins before
// it is answered, and in which the policy, a pure function on one word, gives exactly
// these answers. Callers do not see five things, which the model has to leave open:
//
//   - The instant at which a call was decided: any that the clock showed while the
//     call was under way. The workload moves the clock in steps, and only by a few of
//     them while a call is under way, so that there are few instants to choose from.
//   - The eviction of a key that owes nothing. The model leaves it out, because Ral
//     claims that it changes no answer, except that a Cancel of an earlier take may give
//     nothing back.
//   - The eviction of a key that owes, to make room, and answers without a record from a
//     full table. Over all keys there may be as many as Ral itself has counted. Check
//     finds the fewest that explain a history.
//   - Whether a reservation was remembered when it is given back: see package underway.
//   - The number of units that Cancel counts as given back since the take. It is exact
//     unless another call gives back at the same time. See table.Entry.AddReturned.
//
// TakeAll on two keys is checked as two calls, key by key. This is a relaxation: it
// checks that each key is charged if the call was allowed, and in the end not charged if
// it was refused, but not that both keys are charged at one time.
package linear
