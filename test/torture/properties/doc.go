// Package properties runs random sequences of all verbs on an engine in the virtual time of
// testing/synctest, beside a model of each key. pgregory.net/rapid finds the shortest
// sequence that tells them apart. Between calls time passes, idle keys leave, and the writer dies.
//
// The model applies the policy itself, for all seven policies with random parameters: the engine
// must add and lose nothing. Package policy's own tests check the policies, beside exact fractions.
//
// Each step also checks the laws of Stats. Every call is counted once. Exactly the keys given up
// while they owed count as forgiven. An answer without a record is counted as such.
//
// It cannot see races, because there is one caller. Package linear checks races.
package properties
