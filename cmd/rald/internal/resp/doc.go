// Package resp reads the commands and writes the replies of the protocol that Redis speaks,
// in its versions 2 and 3.
//
// A [Reader] takes what one read of the connection returned and finds the commands in it, so
// that a pipeline costs one read and one write however many commands it has. The arguments of
// a command are slices of the reader's buffer: nothing is copied. What a client may send is
// bounded by [Limits], and a command that exceeds them ends the connection.
//
// The protocol is described at https://redis.io/docs/latest/develop/reference/protocol-spec/.
package resp
