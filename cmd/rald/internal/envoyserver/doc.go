// Package envoyserver implements Envoy's rate limit service v3 by the rules of package rules.
// Without Ral's own keys in a configuration, its answers equal
// github.com/envoyproxy/ratelimit's: see cmd/rald/oracle. The package is a part of rald and may change in
// any release.
//
// A rule of requests per unit counts in windows of Unix time. All hits count, even over the limit,
// as in the reference. The rules of a unit are of one family, so a rule with a changed number keeps
// its counts. Rules with a limit of package policy, and all rules of a domain with all_or_nothing,
// count no refused hits.
//
// Begin with ShouldRateLimit in service.go, and go on with decide.go, window.go and ask.go.
package envoyserver
