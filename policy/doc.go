// Package policy has the limits: how much a key may take, and when.
//
//	limit, err := policy.Funnel(100, 10, time.Second) // bursts of 100, and 10 a second in the long run
//	limit, err = policy.Parse("funnel 100, 10/s")     // the same, from a flag or a configuration
//
// The page docs/choosing.md compares the ten limits in pictures. Limits of one family, as each
// constructor says, can follow each other on a key in use.
//
//   - [Funnel]: token bucket, leaky bucket as a meter, GCRA. Start with it.
//   - [FixedWindow]: a number of units for each window, which opens with a key's first call.
//   - [SlidingWindow]: the same, without the burst around a window's end, approximately.
//   - [AlignedWindow], [CalendarWindow]: from full hour to full hour; by day, week, month or
//     year.
//   - [AtMost]: never more than the limit in any period, wherever it starts.
//   - [Queue]: evenly spaced calls, which wait for their turn.
//   - [Bursty]: stored calls at once, and then evenly, as Guava's RateLimiter.
//   - [WarmingUp]: like Bursty, for resources that are slow when cold.
//   - [InFlight]: a number of units in use at once, until they are released.
//
// Ral remembers one uint64 for each key, its word. A [Policy] is a pure function: given the word,
// the time and a request, it returns a [Decision] and the next word. It reads no clock, takes no
// lock and does not allocate. Package cell keeps the words and advances them by compare-and-swap.
package policy
