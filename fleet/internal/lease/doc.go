// Package lease is leased mode: a server takes units of a key's limit ahead of need,
// from a [Bank] that all servers share, and then decides by itself, in an engine of its
// own, until they are used up or their lease ends.
//
// # Why the fleet never admits more than the limit
//
// A lease of k units is a take of k units from the bank's word, and what is admitted
// locally is admitted from such units, each once. So units are paid before they are
// used, and whatever is lost on the way (a server, a reply, a key's word that had to
// make room) was paid for nothing: it makes the fleet admit less. That leaves the time
// between paying and using, by which more could be used in a window than was paid in
// it.
//
// A lease ends, at the latest, a term after its request was sent: the server measures
// that on its own monotonic clock, from before it sent the request, so that no delay
// on the way prolongs it, and ends it a thousandth sooner than it would, so that the
// two clocks may drift apart by as much.
//
//   - Funnel of capacity C and rate r: what is used in a window of length t was paid
//     in one of length t+term. The bank keeps a funnel whose capacity is less by what
//     drains in a term, rounded up, so that this is at most C - r*term + r*(t+term),
//     which is C + r*t.
//   - FixedWindow: a lease ends with the window that it was paid in, as the bank told
//     it. Each window therefore sees at most the limit used.
//   - SlidingWindow: a lease ends with the window, of those at the multiples of the
//     period, that it was paid in. Decisions and the bound go by the counts of those,
//     and not by when in them a unit was taken.
//
// Giving back: a funnel's lease that is given back may have drained meanwhile. Imagine
// that the units had never been taken. The word would then be lower by what they fill,
// less what would have drained of a funnel that stood empty since, which is no more
// than the time that has passed. So units*interval - age is what may come back, in
// whole units, whatever others took and gave back in between. A window's units come
// back whole as long as it is the current one, as its units cannot be told apart. What
// is given back is asked for once, and never again if the answer is lost.
//
// A key with few calls a term is not leased: Redis decides each call, under the same policy.
// Such a call takes its units from the word and uses them before it returns, as a lease
// does that ends at once, so that the bound above covers it. It costs Redis one command, and
// leases never cost more than that for each call: they are sized, and what is left of them is
// given back, by what earlier leases of the key have saved.
//
// An admission counts at an instant between the beginning and the end of its call.
// Machines that are suspended stop their monotonic clock: when they go on, what is left
// of their leases, at most one a key, counts as of then.
//
// # Division of work
//
// Callers decide on the word of the key in the engine: see word.go. A caller that finds
// no units there, or takes the one that leaves few, tells the one goroutine that talks
// to the bank, over a channel: see owner.go. What else is known of a key is in an
// account: see book.go.
package lease
