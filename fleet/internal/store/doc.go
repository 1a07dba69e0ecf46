// Package store keeps the word of each key, which is the key's state under a policy.Policy, in Redis.
// Scripts decide there. A script reads each key's word and Redis's clock, decides whether the policy
// allows the calls, and writes the next words. One script can decide many calls that differ only in
// the key: see [Store.TakeEach]. In this process the policy then works out each decision again, and
// the two must agree. Package fleet decides how long callers wait, and what happens in an outage.
//
// There is a file for each verb: take.go, all.go, tenant.go, lease.go, refund.go, charge.go, rewrite.go,
// block.go and servers.go. A SlidingLog (log.go) and a limit in flight (inflight.go) keep a set in place
// of a word. check.go, connecting.go and errors.go say why Redis cannot keep limits. A verb makes calls (call.go) of scripts (scripts.go), runs them, and reads the
// replies. decision.go has the policy decide again.
//
// Start at take.go, then read lua/takes.lua, the frame of the script. Its BODY is lua/pace.lua with
// lua/pacetake.lua, for a Funnel, a Queue or a Bursty. refund.go and lua/back.lua give units back.
// giveback.go computes the parameters of lua/back.lua. note.go and lua/note.lua keep a log of takes beside
// the word, so that a give-back can be exact.
package store
