// Package properties runs random sequences of all verbs on an engine, one after the
// other in the virtual time of testing/synctest, beside models that are obviously right,
// and has pgregory.net/rapid find the shortest sequence that tells them apart. Between
// any two calls time passes, keys go idle and leave, and the writer dies.
//
// There are two models of a key. A bucket is a funnel as it would be explained at a
// whiteboard, in exact fractions; it shares no code with the policy. A word applies the
// policy itself, a pure function, for all seven policies and with random parameters: an
// engine must add nothing to it and lose nothing of it. Package policy's own tests check
// that these functions are right.
//
// As well as the answers, the laws of Stats are checked after each step: every call is
// counted once; a key that was given up while it owed is counted as forgiven, and no
// other is; and an answer without a record is counted as one.
//
// It cannot see races, because there is one caller. Package linear checks those.
package properties
