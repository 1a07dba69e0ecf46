// Package redisserver answers clients of Redis: CL.THROTTLE as the module redis-cell does, and
// commands of its own for every other limit.
//
// A connection is one goroutine. It decides each command where it lies in the buffer, and
// sends the replies when no whole command is left there. So a pipeline costs one read and one
// write, and a client that is slow to read keeps its own goroutine waiting and no other.
//
// Start reading at [Server.Serve], then conn.answer, do in commands.go, take.go and catalog.go.
package redisserver
