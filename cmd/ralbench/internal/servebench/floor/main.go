// Command floor answers clients of Redis or of gRPC with a fixed answer: what Go's network costs a
// server before it decides anything. servebench starts it.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// run serves tcp, unix or grpc at an address, by the answer in a file.
func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("it takes tcp, unix or grpc, an address and a file, not %q", args)
	}
	answer, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	network := args[0]
	if network == "grpc" {
		network = "tcp"
	}
	listener, err := net.Listen(network, args[1])
	if err != nil {
		return err
	}
	if args[0] == "grpc" {
		return serveGRPC(listener, answer)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go serveRedis(conn, answer)
	}
}

// serveRedis answers each command. Commands have one asterisk, at their beginning.
func serveRedis(conn net.Conn, answer []byte) {
	defer func() { _ = conn.Close() }()
	in, out := make([]byte, 16<<10), []byte(nil)
	for {
		n, err := conn.Read(in)
		if err != nil {
			return
		}
		out = out[:0]
		for range bytes.Count(in[:n], []byte("*")) {
			out = append(out, answer...)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// streamWorkers are as many as rald's.
const streamWorkers = 64

func serveGRPC(listener net.Listener, answer []byte) error {
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.NumStreamWorkers(streamWorkers))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.ratelimit.v3.RateLimitService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return answer, decode(nil)
		}}},
	}, nil)
	return server.Serve(listener)
}

// raw reads nothing of a message, and writes bytes.
type raw struct{}

var _ encoding.CodecV2 = raw{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }

func (raw) Name() string { return "proto" }
