// Package redistest starts real Redis servers for tests, and breaks them: [Start] starts a server,
// [StartCluster] a cluster of three, [Server.Replica] and [Server.Sentinel] add to a server. [Open]
// is for programs and examples, which have no testing.TB. Start reading at [Server].
package redistest
