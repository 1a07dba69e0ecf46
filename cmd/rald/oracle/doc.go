// Package oracle compares the rate limit service of rald with the reference,
// github.com/envoyproxy/ratelimit, on random configurations and requests. It has a module of its
// own, as the reference brings many others with it, and nothing but tests.
package oracle
