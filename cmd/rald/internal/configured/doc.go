// Package configured keeps the limits that are configured by name, and changes their figures while
// calls go on: what keys have used counts under the new ones, to the unit. Decision 20 has the
// reasons.
//
// Begin with Limits in limits.go. What a change does to the keys is in change.go, and what is
// remembered of limits over a restart in record.go.
package configured
