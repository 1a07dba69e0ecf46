// Package redistest starts real Redis servers for tests, and breaks them: [Start] for
// one, [StartCluster] for a cluster of three, [Server.Replica] and [Server.Sentinel]
// beside one. [Open] is for programs and examples, which have no testing.TB.
//
// Each server listens on a free port of the loopback interface, keeps its files in a
// temporary folder, and is gone with the process that started it, also if that is
// killed (on Linux). It knows nothing of limits. Start reading at [Server].
package redistest
