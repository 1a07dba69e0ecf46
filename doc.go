// Package ral is the front page of Ral, a rate limiter for Go servers that check
// every request. It holds no code: users start at package engine.
//
//	limiter, err := engine.New[string](engine.Config{
//		Policy: policy.Must(policy.Funnel(100, 10, time.Second)),
//	})
//	...
//	if !limiter.Allow(client) {
//		// too many requests
//	}
//
// For one limit without keys there is package single. The README says what Ral promises,
// and ARCHITECTURE.md how it works.
package ral
