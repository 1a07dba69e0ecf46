// Package fleet keeps one limit over many servers. A [Limiter] has the verbs of package
// engine, with a context and an error, and gives the same decisions; the words of its
// keys live in a Redis, or a Valkey, that all servers ask, and go by that one's clock.
//
// There are two modes. In [Exact] mode each call is decided in Redis, by one atomic
// script. In [Leased] mode each server takes units ahead of need and decides by itself.
//
// Redis may be slow, or gone. No call waits for it longer than [Config.Budget], and after
// a few failures none asks it any more, but one now and then to see whether it is back.
// What is answered meanwhile, [Config.Outage] says: by default each server keeps its
// share of the limit, and charges what it let pass when Redis is back. Every answer
// tells how it was reached, and [Limiter.Stats] how many were reached how.
//
// Start reading at [Limiter].
package fleet
