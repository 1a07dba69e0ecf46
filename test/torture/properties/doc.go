// Package properties runs random sequences of all verbs on an engine in the virtual time of
// testing/synctest, beside models that are obviously right. pgregory.net/rapid finds the shortest
// sequence that tells them apart. Between calls time passes, idle keys leave, and the writer dies.
//
// There are two models of a key. A bucket is a whiteboard funnel in exact fractions, without code
// of the policy. A word applies the policy itself, for all seven policies with random parameters:
// the engine must add and lose nothing. Package policy's own tests check the policies.
//
// Each step also checks the laws of Stats. Every call is counted once. Exactly the keys given up
// while they owed count as forgiven. An answer without a record is counted as such.
//
// It cannot see races, because there is one caller. Package linear checks races.
package properties
