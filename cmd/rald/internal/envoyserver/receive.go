package envoyserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Envoy passes a request if the service answers with an error, and its clients choose the values of
// descriptors. So the service reads requests itself, rather than have gRPC answer those above a
// small size, or with a text that is no UTF-8, with an error.
const (
	// maxMessage bounds the bytes of a request.
	maxMessage = 16 << 20
	// smallMessage bounds the bytes of a request, and of a stream's window before it is read.
	smallMessage = 64 << 10

	// maxAtOnce bounds the bytes of all requests above smallMessage that are read or decided at once.
	// A request takes them before gRPC widens its stream's window, so more stay with the client.
	maxAtOnce = 4 * maxMessage

	// maxParts bounds the descriptors and entries of a request together, which Envoy's clients do not
	// choose. Each takes memory when it is decoded, even if it is empty.
	maxParts = 1 << 10

	// readWithin bounds the time of a request that has taken a part of maxAtOnce.
	readWithin = 10 * time.Second
)

// messageReader is the part of gRPC's streams that reads a message in two steps. With gRPC's own
// reading no code of a service runs between the length of a message and its bytes.
type messageReader interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// serviceDesc is the description of the rate limit service, with requests that receive reads.
func (s *Service) serviceDesc() *grpc.ServiceDesc {
	desc := pb.RateLimitService_ServiceDesc
	method := desc.Methods[0]
	answer := method.Handler
	method.Handler = func(server any, ctx context.Context, _ func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		taken := 0
		defer func() { s.reading.giveBack(taken) }()
		receive := func(request any) (err error) {
			taken, err = s.receive(ctx, request.(proto.Message))
			return err
		}
		return answer(server, ctx, receive, interceptor)
	}
	desc.Methods = []grpc.MethodDesc{method}
	return &desc
}

// receive reads a request. The caller must give back the parts taken, also after an error.
func (s *Service) receive(ctx context.Context, request proto.Message) (taken int, err error) {
	stream := grpc.ServerTransportStreamFromContext(ctx).(messageReader)
	// header says whether the message is compressed, and has its length.
	var header [5]byte
	if err := stream.ReadMessageHeader(header[:]); err != nil {
		return 0, err
	}
	length := int64(binary.BigEndian.Uint32(header[1:]))
	read := func() (mem.BufferSlice, error) { return stream.Read(int(length)) }
	switch {
	case header[0] != 0:
		return 0, status.Error(codes.Unimplemented, "the request is compressed: only requests without compression are accepted")
	case length > maxMessage:
		return 0, status.Errorf(codes.ResourceExhausted, "the request has %d bytes: at most %d are accepted", length, maxMessage)
	case length > smallMessage:
		if taken, err = s.reading.take(ctx, length); err != nil {
			return taken, err
		}
		all := read
		read = func() (mem.BufferSlice, error) { return inTime(all) }
	}
	wire, err := read()
	if err != nil {
		return taken, err
	}
	whole := wire.MaterializeToBuffer(mem.DefaultBufferPool())
	wire.Free()
	defer whole.Free()
	if err := boundParts(partsOf(whole.ReadOnlyData())); err != nil {
		return taken, err
	}
	return taken, unmarshal(whole.ReadOnlyData(), request)
}

// boundParts returns an error for a request with more than maxParts.
func boundParts(n int) error {
	if n > maxParts {
		return status.Errorf(codes.ResourceExhausted, "the request has more than %d descriptors and entries, the most that are accepted", maxParts)
	}
	return nil
}

// partsOfJSON counts the maps within a request in JSON, up to one more than maxParts. It leaves faults
// to the decoder.
func partsOfJSON(request []byte) int {
	// The request itself does not count.
	n := -1
	for read := json.NewDecoder(bytes.NewReader(request)); n <= maxParts; {
		token, err := read.Token()
		if err != nil {
			break
		}
		if token == json.Delim('{') {
			n++
		}
	}
	return n
}

// inTime returns the result of read, or an error after readWithin. The call then ends, and gRPC ends
// its stream and so the read.
func inTime(read func() (mem.BufferSlice, error)) (mem.BufferSlice, error) {
	var wire mem.BufferSlice
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		wire, err = read()
	}()
	select {
	case <-done:
		return wire, err
	case <-time.After(readWithin):
		return nil, status.Errorf(codes.DeadlineExceeded, "the rest of the request did not come within %v", readWithin)
	}
}

// budget is maxAtOnce in parts of smallMessage. newBudget makes it.
type budget struct {
	// taking has an element while a request takes parts, so that no two wait for each other.
	taking chan struct{}
	// taken has an element for each part.
	taken chan struct{}
}

func newBudget() budget {
	return budget{taking: make(chan struct{}, 1), taken: make(chan struct{}, maxAtOnce/smallMessage)}
}

// take takes the parts for that many bytes, and waits for them in turn until the context ends. The
// caller must give back the parts, also after an error.
func (b budget) take(ctx context.Context, bytes int64) (parts int, err error) {
	if err := send(ctx, b.taking); err != nil {
		return 0, err
	}
	defer func() { <-b.taking }()
	for ; int64(parts)*smallMessage < bytes; parts++ {
		if err := send(ctx, b.taken); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

func send(ctx context.Context, to chan struct{}) error {
	select {
	case to <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b budget) giveBack(parts int) {
	for range parts {
		<-b.taken
	}
}

// partsOf counts the descriptors and entries of a request that is not decoded yet, up to one more
// than maxParts.
func partsOf(request []byte) (n int) {
	for descriptor := range fields(request) {
		if descriptor.number != 2 {
			continue
		}
		for entry := range fields(descriptor.value) {
			if entry.number == 1 {
				n++
			}
			if n > maxParts {
				return n
			}
		}
		if n++; n > maxParts {
			return n
		}
	}
	return n
}
