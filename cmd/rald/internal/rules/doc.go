// Package rules reads the configuration of Envoy's rate limit service, in the format of
// github.com/envoyproxy/ratelimit of July 2026 (f2fb157), and finds the rule of a descriptor. It
// accepts the same files, except for text without effect, and finds the same rules: package
// cmd/rald/oracle compares both. The package is a part of rald and may change in any release. Three keys
// go beyond that format:
//
//	domain: shop
//	all_or_nothing: true            # a refused request of this domain consumes nothing
//	descriptors:
//	  - key: remote_address
//	    rate_limit:
//	      limit: funnel 100, 10/s   # in place of unit and requests_per_unit
//	      candidate: sliding 500/m  # counted beside the limit, without effect
//
// Start with Read in directory.go. file.go makes rules of a file, and match.go finds them.
package rules
