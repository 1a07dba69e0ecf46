// Package envoyserver answers Envoy's rate limit service v3 by the rules of package rules. Where
// a configuration has no keys of Ral's own, its answers are those of
// github.com/envoyproxy/ratelimit: see test/oracle. The package is a part of rald and may change in any release.
//
// A rule of so many requests per unit is a count in windows of Unix time. All hits count, also
// those that are over the limit, as they do in the reference. The count is kept under one limit
// for each unit, far above any rule's, so that rules only compare: a rule whose number changes
// goes on with the counts there are. A rule with a limit of package policy, and all rules of a
// domain with all_or_nothing, count nothing that they refuse.
//
// Begin with ShouldRateLimit in service.go, and go on with tally.go.
package envoyserver
