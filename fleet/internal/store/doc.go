// Package store keeps the words of keys in Redis, where scripts decide on them. A script reads each
// key's word and Redis's clock, decides whether the policy allows the calls, and writes the next
// words. A script decides many calls that differ only in the key: see [Store.TakeEach]. The
// policy then works out each decision again, and the two must agree. How long callers wait, and
// outages, are left to package fleet.
//
// There is a file for each verb: take.go, all.go, lease.go, refund.go, charge.go, rewrite.go, block.go
// and servers.go. A verb makes calls (call.go) of scripts (scripts.go), runs them, and reads the
// replies. decision.go has the policy decide again.
//
// Start at take.go, then read lua/takes.lua, the frame of the script. Its BODY is lua/pace.lua with
// lua/pacetake.lua, for a Funnel, a Queue or a Bursty. refund.go and lua/back.lua give units back, by
// the figures of giveback.go, with the help of note.go and lua/note.lua.
package store
