// Package sidebyside compares what limits cost an admitted and a refused call of gRPC: grpclimit, the rate limiter of
// failsafe-go, and the ratelimit interceptor of go-grpc-middleware around golang.org/x/time/rate.
//
//	go test -run '^$' -bench SideBySide -benchtime 200x -cpu 1 ./test/sidebyside/grpc
//
// They are requirements of module test, so that users of grpclimit do not depend on them.
package sidebyside
