// Package pacing decides how fast the calls of a key are sent. A [State] and an answer to a [Call] make a
// [Change]. The package knows no key, no lock, no engine and no clock: times are arguments.
//
// # Debts and the engine's word
//
// The engine counts a key's units in a word under a [Limit], and calls change the word while an
// answer is used. So a pace does not set the number of units in use. Its Limit brings along, as
// [Known], the units that the server told. engine.ChangeLimit has Limit.Carry work out the next
// word from Known and the word at that moment. Three kinds of units are charged by engine.Refund
// instead: units above a burst, units that the server no longer has, and units that must not go at
// once after a hold.
//
// Start reading at [State.Answered], then [Pace] and Pace.Spend.
package pacing
