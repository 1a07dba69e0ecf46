// Package redistest starts real Redis servers for tests, and breaks them: [Start] for
// one, [StartCluster] for a cluster of three, [Server.Replica] and [Server.Sentinel]
// beside one. [Open] is for programs and examples, which have no testing.TB.
//
// Package redisd starts and ends each of them. Neither knows anything of limits. Start
// reading at [Server].
package redistest
