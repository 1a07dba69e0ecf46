package rpcstatus

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Promise: A message that is too large for a server holds no call of gRPC or Connect.
func TestTooLargeKnowsErrorsOfMessageSize(t *testing.T) {
	for _, message := range []string{
		// Go
		"grpc: received message larger than max (5 vs. 4)",
		"grpc: received message larger than max length allowed on current machine (5 vs. 4)",
		"grpc: received message after decompression larger than max 4",
		"grpc: message after decompression larger than max (5 vs. 4)",
		"grpc: message too large (5000000000 bytes)",
		"trying to send message larger than max (5 vs. 4)",
		"upstream: rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)",
		// C++ and Python
		"Received message larger than max (5 vs. 4)",
		"Sent message larger than max (5 vs. 4)",
		"SERVER: Received message larger than max (5 vs. 4)",
		// Java
		"gRPC message exceeds maximum size 4: 5",
		"Decompressed gRPC message exceeds maximum size 4",
		"message too large 5 > 4",
		// .NET
		"Received message exceeds the maximum configured message size.",
		"Sending message exceeds the maximum configured message size.",
		// Node
		"Received message that decompresses to a size larger than 4",
		"Attempted to send message with a size larger than 4",
		// connect-es
		"message size 5 is larger than configured readMaxBytes 4",
		// connect-go
		"message size 5 is larger than configured max 4",
		"message is larger than configured max 4 - unable to determine message size: EOF",
		"message size 5 exceeds sendMaxBytes 4",
		"compressed message size 5 exceeds sendMaxBytes 4",
		"read first 5-byte envelope: exceeded 4 byte http.MaxBytesReader limit",
	} {
		assert.True(t, TooLarge(message), message)
	}
	for _, message := range []string{
		"", "no", "quota larger than max", "quota exceeded for messages", "messages per second larger than max 5",
		"message rate exceeds maximum 5", "message exceeds the quota", "limit of message size 5 reached", "too many messages",
		"message quota is too large to serve", "bandwidth exhausted: request too large a share",
		"message is larger than max messages per minute", "message too large for the remaining quota, retry in 5s",
	} {
		assert.False(t, TooLarge(message), message)
	}
}
