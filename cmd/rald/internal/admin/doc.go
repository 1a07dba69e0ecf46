// Package admin serves operators over HTTP: /metrics for Prometheus, the page of
// package inspect at /debug/ral/, /debug/pprof/ and /healthz. It reads figures that the doors
// and the engines keep in any case, and no request of a client waits for it.
//
// Start reading at New. Then guard.go has how tokens are compared, inspection.go how the page
// follows the engines and the configured limits, and metrics.go what is counted.
package admin
