// Package configured keeps the limits configured by name, and changes their figures while calls go
// on: the keys' usage counts under the new figures, to the unit. Decision 20 has the reasons.
//
// Begin with Limits in limits.go. change.go translates keys, and record.go remembers limits over a
// restart.
package configured
