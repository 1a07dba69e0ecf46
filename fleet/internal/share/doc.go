// Package share is what a server goes by on its own while Redis is away: its share of the
// limit, which begins from what Redis last said of each key, and how much of it has to be
// charged when Redis is back. [Of] makes the share of a limit; start reading at [Local].
package share
