// Package properties runs random sequences of all verbs on an engine, one after the
// other in the virtual time of testing/synctest, beside models that are obviously right,
// and has pgregory.net/rapid find the shortest sequence that tells them apart. Between
// any two calls time passes, keys go idle and leave, and the writer dies.
//
// There are two models of a key. A bucket knows a funnel as it would be explained at a
// whiteboard, in exact fractions, and has nothing to do with the code of the policy. A
// word is the policy as the pure function that it is, for all seven, with random
// parameters: an engine must add nothing to it and lose nothing of it. That these
// functions are right, package policy's own tests see to.
//
// Besides the answers, the laws of Stats are checked after each step: every call is
// counted once; a key that was given up while it owed is counted as forgiven, and no
// other is; and an answer without a record is counted as one.
//
// It cannot see races, since there is one caller: package linear is for those.
package properties
