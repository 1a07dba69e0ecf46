// Package share decides by a server's share of the limit while Redis is away, and counts the units
// to charge later. [Of] divides a limit; start reading at [Local].
package share
