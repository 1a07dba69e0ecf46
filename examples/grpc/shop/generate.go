// Package shop is a service for examples: its messages, and its clients and servers for gRPC. Package shopconnect
// below it has those for Connect. All are generated from shop.proto.
package shop

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate
