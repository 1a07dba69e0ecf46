package bench

import "time"

// guessedSpeed is the number of calls a second that each caller is taken to make
// until a yardstick has been measured. slowdown is how much slower than the xsync
// map a limiter is taken to be.
const (
	guessedSpeed = 5e6
	slowdown     = 1.5
)

// limitRefusing returns the limit, the same for each key, that refuses this share
// of the calls when they come at this speed, in calls a second.
//
// The bursts are a quarter of what drains in a round, but no less than 3: a key that
// may not come twice in a row is refused far below its rate. They add to what a
// key may take in a round, which matters little: by Zipf's law the share falls
// only with the logarithm of that, so a limiter four times as fast or as slow as
// expected is still refused between 40% and 60% of its calls.
func limitRefusing(streams []stream, keys int, share, speed float64, round time.Duration) Limit {
	times := make([]float64, keys)
	calls := 0.0
	for _, s := range streams {
		for _, i := range s.order {
			times[i]++
			calls++
		}
	}
	// A key with a share p of the calls is refused max(p-most, 0) of all.
	low, high := 0.0, 1.0
	for range 30 {
		most := (low + high) / 2
		refused := 0.0
		for _, n := range times {
			refused += max(n/calls-most, 0)
		}
		if refused > share {
			low = most
		} else {
			high = most
		}
	}
	rate := high * speed
	return Limit{
		Capacity: max(int64(rate*round.Seconds()/4), 3),
		Count:    max(int64(rate), 1),
		Per:      time.Second,
	}
}
