// Package oracle tests the rate limit service of rald against the reference,
// github.com/envoyproxy/ratelimit, on random configurations and requests.
package oracle
