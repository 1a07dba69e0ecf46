// Package oracle compares the rate limit service of rald with the reference,
// github.com/envoyproxy/ratelimit, on random configurations and requests. It
// holds nothing but tests.
package oracle
