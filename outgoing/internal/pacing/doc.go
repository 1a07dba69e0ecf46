// Package pacing decides how fast the calls of a key are sent, from answers to values: a [State] and an answer to
// a [Call] make a [Change]. It knows no key, no lock, no engine and no clock: times are arguments.
//
// # Debts and the engine's word
//
// The engine counts a key's units in a word under a [Limit], and calls change the word while an answer is used. So
// a pace states no units. It brings the units that the server told along in its Limit, as [Known], and
// engine.ChangeLimit has Limit.Carry work out the next word from them and the word at that moment. Units that a
// pace does not carry are charged by engine.Refund: those above a burst, those that the server no longer has, and
// those that must not go at once after a hold.
//
// Start reading at [State.Answered], then [Pace] and Pace.Spend.
package pacing
