// Package store keeps the words of keys in Redis, and has Redis decide on them, in scripts. A script
// reads the word of each key and Redis's clock, works out whether the policy allows the calls, and
// writes the next words. One script decides many calls if they differ only in the key: see TakeEach.
// The policy itself then works out each decision from what the script found. The two must agree.
//
// It must not know how long a caller waits, nor what holds while Redis does not answer.
// Start at take.go, then read lua/takes.lua, the frame of the script. Its BODY is lua/pace.lua with
// lua/pacetake.lua, for a Funnel, a Queue or a Bursty. Units are given back by refund.go and
// lua/back.lua.
package store
