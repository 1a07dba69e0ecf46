// Package linear checks that what real goroutines are answered, all at once, is what
// one goroutine after the other would have been answered: that Ral is linearizable,
// key by key.
//
// A [Workload] has goroutines call every verb on a few keys at a time, while keys are
// evicted and come back and the writer is killed, and notes each call with its answer.
// [Check] has porcupine look for an order of a key's calls in which each begins before
// it is answered, and in which the pure function that the policy is, applied to one
// word, gives these very answers. There are four things that the callers do not see,
// and that the model has to leave open:
//
//   - The instant by which a call was decided: any that the clock showed while the
//     call was under way. The clock is one that the workload moves, in steps, and it
//     moves no further than a few of them while a call is under way, so that there are
//     few to choose from.
//   - The eviction of a key that owes nothing. It has no place in the model, since that
//     it changes no answer is what is claimed, but for a Cancel of what was taken before:
//     that may give nothing back.
//   - The eviction of one that owes, to make room, and answers without a record from a
//     full table: as many as Ral itself has counted, over all keys, and no more. Check
//     finds the fewest with which a history can be explained.
//   - How many units Cancel believes others to have given back since the take: as many
//     as they did, unless some do so at that very time. See table.Entry.AddReturned.
//
// TakeAll on two keys is two calls that are checked key by key, which is a relaxation:
// that both happen at one time is not checked, only that each key is charged if the call
// was allowed and is not, in the end, if it was refused.
package linear
