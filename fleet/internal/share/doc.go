// Package share is what a server goes by on its own while Redis is away: its share of the
// limit, kept by the in-process engine, and a book of what has to be charged when Redis
// is back. Start reading at [Of].
package share
