// Package resp reads the commands and writes the replies of Redis's protocol, versions 2 and 3:
// https://redis.io/docs/latest/develop/reference/protocol-spec/.
//
// A [Reader] finds the commands in the bytes of each read, so a pipeline costs one read and one
// write however many commands it has. Arguments are slices of the reader's buffer, never copies.
// [Limits] bound the client; a command that exceeds them ends the connection.
package resp
