// Package redisserver answers clients of Redis: CL.THROTTLE like the module redis-cell, and
// commands of its own for every other limit.
//
// A connection is a goroutine. It decides each command in the reader's buffer, and replies when no
// whole command is left: a pipeline costs one read and one write, and a slow reader delays only
// itself.
//
// Start reading at [Server.Serve], then conn.answer in loop.go, do in commands.go, take.go, reply.go and catalog.go.
package redisserver
