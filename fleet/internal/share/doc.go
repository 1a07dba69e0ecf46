// Package share decides by a server's share of the limit while Redis is away, and counts the units
// to charge later. Here are the table of keys, its locks and its clock. Package part divides the limit,
// and decides on a key. Start reading at [Local].
package share
