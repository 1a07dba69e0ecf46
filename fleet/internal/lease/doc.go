// Package lease implements leased mode: a server takes units of a key's limit ahead of need from a
// [Bank] that all servers share. It decides alone, in its own engine, until they are used up or
// their lease ends.
//
// # Why the fleet never admits more than the limit
//
// A lease of k units is a take of k units from the bank's word. Local admissions use such units,
// each once, so units are paid before use. Losses on the way (a server, a reply, an evicted word)
// were paid, so the fleet only admits less. It remains to bound the time between paying and using.
// A lease ends at the latest a term after its request was sent, by the server's monotonic clock,
// read before sending: no delay on the way prolongs it. It ends a thousandth sooner than that, so
// that the clocks of server and bank may drift by as much.
//
//   - Funnel of capacity C and rate r: units used in a window of length t were paid in a window of
//     length t+term. The bank's funnel has less capacity by the units that drain in a term, rounded
//     up. At most C - r*term + r*(t+term) = C + r*t are used.
//   - FixedWindow: a lease ends with the window that paid for it, as the bank told it. So each
//     window has at most the limit used.
//   - SlidingWindow: a lease ends with the window, counted in multiples of the period, that paid
//     for it. Decisions and the bound depend on the counts of these windows, not on when in them a
//     unit was taken.
//
// Giving back: units of a funnel's lease may have drained meanwhile. Had they never been taken, the
// word would be lower by their fill, less the time for which the funnel would have been empty. That
// time is at most the age of the lease. So units*interval - age may come back, in whole units,
// whatever others took and gave back in between. Units of the current window come back whole, since
// they are alike. A return is never repeated if its answer is lost.
//
// A key with few calls a term is not leased: Redis decides each call, under the same policy. The
// bound holds: such a call takes its units from the word and uses them before it returns. It costs
// Redis a command, and leases never cost more commands than calls. Their size, and whether units
// are given back, depend on the commands that the key's leases have saved.
//
// An admission counts at an instant between the beginning and the end of its call. A suspended
// machine stops its monotonic clock: the rest of its leases, at most one a key, counts when it
// resumes.
//
// # Division of work
//
// Package plan decides: how long a lease of the limit lasts, how much a key asks for, and what a
// refusal means. Package word is a key's word in the engine, on which callers decide. Both are
// arithmetic on values. This package has the lock, the clock and the bank: a caller that finds no
// units, or leaves few, tells the goroutine that talks to the bank, over a channel (owner.go). The
// book has an account of each key, and the calls that wait for it (book.go).
package lease
