// Package sidebyside compares the costs of gRPC calls under grpclimit, failsafe-go, and
// go-grpc-middleware's ratelimit interceptor around golang.org/x/time/rate.
//
//	go test -run '^$' -bench SideBySide -benchtime 200x -cpu 1 ./test/sidebyside/grpc
//
// Module test requires them, so that users of grpclimit do not.
package sidebyside
