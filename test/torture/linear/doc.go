// Package linear checks that Ral is linearizable, key by key: concurrent goroutines get answers
// that they could have got one after the other.
//
// A [Workload] calls every verb on a few keys at a time and notes the answers, while keys are
// evicted and come back and the writer is killed. [Check] has porcupine look for an order of a
// key's calls. Each must begin before it is answered, and the policy, a pure function on a word,
// must give exactly these answers. The model leaves open five things that callers do not see:
//
//   - The instant of the decision: any that the clock showed during the call. The clock moves in
//     steps, and only by a few during a call, so that there are few instants to choose from.
//   - The eviction of a key that owes nothing. The model omits it: Ral claims that it changes no
//     answer, except that a Cancel of an earlier take may give nothing back.
//   - The eviction of a key that owes, and answers without a record from a full table. Over all
//     keys there may be as many as Ral has counted. Check finds the fewest that explain a history.
//   - Whether a returned reservation was remembered: see package underway.
//   - The units that Cancel counts as returned since the take. It is exact unless another call
//     gives back at the same time: see table.Entry.AddReturned.
//
// Units in use have a model of their own, which knows no word and no policy: see slots.
//
// TakeAll on two keys is checked as two calls, key by key. Each key must be charged if the call was
// allowed, and in the end not if it was refused. Charging both at one time is not checked.
package linear
