// Package store keeps the words of keys in Redis, and has Redis decide on them: one
// script a call, which reads the key's word and Redis's clock, works out whether the
// policy allows the call, and writes the next word. What the script found and did then
// goes through the policy itself, which tells the rest of the decision, and has to agree.
//
// It must not know how long a caller waits, nor what holds while Redis does not answer.
// Start at take.go, then read lua/pace.lua with what a call does there, lua/pacetake.lua.
// What comes back is in refund.go and lua/back.lua.
package store
