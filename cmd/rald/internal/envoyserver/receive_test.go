package envoyserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

const perUser = `domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 5}
  - key: field
    rate_limit: {unit: year, requests_per_unit: 1000}
  - key: path
    value: /caf*
    rate_limit: {unit: year, requests_per_unit: 2}
`

// anyBytes is a codec for messages that package proto would not make.
type anyBytes struct{}

func (anyBytes) Name() string                  { return "proto" }
func (anyBytes) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (anyBytes) Unmarshal(wire []byte, into any) error {
	return proto.Unmarshal(wire, into.(proto.Message))
}

// descriptorOf returns a field of a request with a descriptor of pairs of a key and a value, which
// may be no UTF-8.
func descriptorOf(pairs ...string) []byte {
	var entries []byte
	for ; len(pairs) > 0; pairs = pairs[2:] {
		var entry []byte
		for i, text := range pairs[:2] {
			entry = protowire.AppendString(protowire.AppendTag(entry, protowire.Number(i+1), protowire.BytesType), text)
		}
		entries = protowire.AppendBytes(protowire.AppendTag(entries, 1, protowire.BytesType), entry)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), entries)
}

// wire returns a request of the domain shop.
func wire(descriptors ...[]byte) []byte {
	all := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "shop")
	for _, d := range descriptors {
		all = append(all, d...)
	}
	return all
}

// serve returns a client in memory.
func (d door) serve() *grpc.ClientConn {
	l := bufconn.Listen(1 << 16)
	server := d.GRPC()
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(anyBytes{})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(d.t, err)
	d.t.Cleanup(func() {
		assert.NoError(d.t, conn.Close())
		server.Stop()
		assert.Empty(d.t, d.reading.taken, "parts of maxAtOnce are lost")
	})
	return conn
}

func request(ctx context.Context, to *grpc.ClientConn, message []byte) (*pb.RateLimitResponse, error) {
	response := new(pb.RateLimitResponse)
	return response, to.Invoke(ctx, pb.RateLimitService_ShouldRateLimit_FullMethodName, message, response)
}

// passes returns how many of 10 equal requests pass. None is answered with an error.
func passes(t *testing.T, to *grpc.ClientConn, descriptors ...[]byte) (n int) {
	t.Helper()
	for range 10 {
		response, err := request(t.Context(), to, wire(descriptors...))
		require.NoError(t, err)
		if response.OverallCode == ok {
			n++
		}
	}
	return n
}

// Envoy passes a request if the answer is an error.
//
// Promise: Envoy's service counts values of any length and any bytes, in requests of up to 16 MiB, rather than answer with an error.
func TestNoValueIsAnError(t *testing.T) {
	to := openIn(t, families.Config{}, Config{Headers: true, Metadata: true}, perUser).serve()
	for _, value := range []string{
		strings.Repeat("x", 16_000), strings.Repeat("x", 17_000), strings.Repeat("x", 59_000), strings.Repeat("x", 3<<20),
		strings.Repeat("x", 17_000) + "y", "caf\xe9", "caf\xe8", "caf", "\xff\xfe", "\xf4\x8f\xbf", strings.Repeat("\x80", 70_000),
	} {
		assert.Equal(t, 5, passes(t, to, descriptorOf("user", value)), "%d bytes: %.20q", len(value), value)
	}
	assert.Equal(t, 5, passes(t, to, descriptorOf("field", strings.Repeat("f", 17_000)), descriptorOf("user", "192.0.2.1")), "beside a long value")
	assert.Equal(t, 5, passes(t, to, descriptorOf("field", "\xe9"), descriptorOf("user", "192.0.2.2")), "beside a value that is no text")
	assert.Equal(t, 10, passes(t, to, descriptorOf("\xe9", "x")), "without a rule")
	assert.Equal(t, 2, passes(t, to, descriptorOf("path", "/caf\xe9")), "by a wildcard")
}

// A message above the bound is an error of gRPC, as is one that is no message.
func TestRequestAboveTheBoundIsRefused(t *testing.T) {
	d := open(t, perUser)
	to := d.serve()
	// The lengths of a descriptor, an entry and its value take up to 4 bytes.
	rest := len(wire(descriptorOf("user", ""))) + 2*6
	largest := wire(descriptorOf("user", strings.Repeat("x", maxMessage-rest)))
	require.InDelta(t, maxMessage, len(largest), 8)
	response, err := request(t.Context(), to, largest)
	require.NoError(t, err)
	assert.EqualValues(t, 4, response.Statuses[0].LimitRemaining)
	_, err = request(t.Context(), to, append(largest, make([]byte, 9)...))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	_, err = request(t.Context(), to, []byte{0xff})
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
}

// allocated returns the bytes that f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Requests with more are refused before they are decoded.
//
// Promise: Envoy's service decodes at most 1,024 descriptors and entries of a request, also if they are empty.
func TestTooManyDescriptorsAreNotDecoded(t *testing.T) {
	d := open(t, perUser)
	to := d.serve()
	json := func(body string) (status int) {
		answer := httptest.NewRecorder()
		d.HTTP().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "http://localhost/json", strings.NewReader(body)))
		return answer.Code
	}
	empty, user := descriptorOf(), descriptorOf("user", "x")
	most := bytes.Repeat(user, maxParts/2)
	_, err := request(t.Context(), to, wire(most))
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, json(`{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "x{{{"}]}`+strings.Repeat(", {}", maxParts-2)+`], "hitsAddend": 6}`))
	for name, message := range map[string][]byte{
		"one more descriptor": wire(most, empty),
		"one more entry":      wire(bytes.Repeat(user, maxParts/2-1), descriptorOf("user", "x", "user", "y")),
		"empty descriptors":   wire(bytes.Repeat(empty, (maxMessage-6)/len(empty))),
		"empty entries":       wire(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), bytes.Repeat([]byte{10, 0}, maxMessage/2-10))),
	} {
		assert.Less(t, allocated(func() {
			_, err := request(t.Context(), to, message)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%s: %v", name, err)
		}), 6*int64(maxMessage), name) // of the client and the network in memory, too
	}
	many := `{"domain": "shop", "descriptors": [{}` + strings.Repeat(",{}", maxMessage/3-100) + `]}`
	assert.Less(t, allocated(func() { assert.Equal(t, http.StatusBadRequest, json(many)) }), 6*int64(maxMessage))
}

// A value of several MiB is not copied for its key, and a short value with the text of its hash has
// another key.
func TestLongValuesAreHashedFirst(t *testing.T) {
	key := func(value string) string {
		return bounded(appendKey(nil, "shop", []*common.RateLimitDescriptor_Entry{{Key: "user", Value: value}}, rules.Match{}))
	}
	long := strings.Repeat("x|", 1<<20)
	assert.Less(t, allocated(func() { key(long) }), int64(len(long)/20))
	keys := map[string]bool{}
	values := []string{
		long, long + "x", clientaddr.Hashed(long), "#" + clientaddr.Hashed(long), `\#` + clientaddr.Hashed(long),
		strings.Repeat("|", maxKey), strings.Repeat("|", maxKey+1), strings.Repeat("x", maxKey), strings.Repeat("x", maxKey+1),
	}
	for _, value := range values {
		assert.LessOrEqual(t, len(key(value)), maxKey)
		keys[key(value)] = true
	}
	assert.Len(t, keys, len(values))
}

// Memory holds no long key.
func TestLongKeysAreHashed(t *testing.T) {
	d := open(t, perUser)
	long := &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{entries("user=" + strings.Repeat("x", 100_000))}}
	_, err := d.ShouldRateLimit(t.Context(), long)
	require.NoError(t, err)
	keys := 0
	for family := range d.keep.All() {
		for key := range families.EngineOf(family).All() {
			keys++
			assert.Less(t, len(key), 100)
		}
	}
	assert.Equal(t, 1, keys)
}

// Short requests wait for none.
//
// Promise: Requests of Envoy's service above 64 KiB have at most 64 MiB at once, over all connections.
func TestLongRequestsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, perUser)
		long, short := wire(descriptorOf("user", strings.Repeat("x", smallMessage))), wire(descriptorOf("user", "x"))
		taken, err := d.reading.take(t.Context(), maxAtOnce-smallMessage)
		require.NoError(t, err)
		patient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			to := d.serve()
			_, err = request(patient, to, short)
			require.NoError(t, err)
			_, err = request(patient, to, long)
			require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
			patient, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
		}
		d.reading.giveBack(1)
		_, err = request(patient, d.serve(), long)
		require.NoError(t, err)
		d.reading.giveBack(taken - 1)
	})
}

// stalled is a stream that has brought the length of a message, and never brings the rest.
type stalled struct {
	context.Context
	length uint32
}

func (s stalled) ReadMessageHeader(header []byte) error {
	binary.BigEndian.PutUint32(header[1:], s.length)
	return nil
}

func (s stalled) Read(int) (mem.BufferSlice, error) {
	<-s.Done()
	return nil, s.Err()
}

func (stalled) Method() string                      { return pb.RateLimitService_ShouldRateLimit_FullMethodName }
func (stalled) SetHeader(grpcmetadata.MD) error     { return nil }
func (stalled) SendHeader(grpcmetadata.MD) error    { return nil }
func (stalled) SetTrailer(md grpcmetadata.MD) error { return nil }

// A stalled request gives its part back.
func TestStalledRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, perUser)
		handler := d.serviceDesc().Methods[0].Handler
		begun := time.Now()
		for range 2 * maxAtOnce / maxMessage {
			go func() {
				ctx, end := context.WithCancel(t.Context())
				// gRPC ends the context after an answer as well.
				defer end()
				_, err := handler(d.Service, grpc.NewContextWithServerTransportStream(ctx, stalled{ctx, maxMessage}), nil, nil)
				assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
			}()
		}
		synctest.Wait()
		assert.Len(t, d.reading.taken, cap(d.reading.taken))
		time.Sleep(readWithin)
		synctest.Wait()
		assert.Len(t, d.reading.taken, cap(d.reading.taken), "of the others")
		time.Sleep(readWithin)
		synctest.Wait()
		assert.Empty(t, d.reading.taken)
		assert.Equal(t, 2*readWithin, time.Since(begun))
		_, err := handler(d.Service, grpc.NewContextWithServerTransportStream(t.Context(), stalled{t.Context(), math.MaxUint32}), nil, nil)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	})
}
