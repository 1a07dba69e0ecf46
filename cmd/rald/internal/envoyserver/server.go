package envoyserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/browser"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/encoding/protojson"
)

// workers are goroutines that answer request after request. A new goroutine for each would grow its
// stack each time: with 64 requests under way that took a third of a request's processor time.
// Beyond them each request has a goroutine.
const workers = 64

// healthName is the reference's name for its health.
const healthName = "ratelimit"

// tellHealth has no effect after Drain.
func (s *Service) tellHealth(is healthpb.HealthCheckResponse_ServingStatus) {
	for _, name := range []string{"", healthName, pb.RateLimitService_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, is)
	}
}

// GRPC returns a server with the rate limit service, the health service and reflection. A request
// has at most 16 MiB; those above 64 KiB have at most 64 MiB at once, and others wait. The options are
// added.
func (s *Service) GRPC(options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
		// The bound is for the other services.
		grpc.MaxRecvMsgSize(smallMessage),
		grpc.NumStreamWorkers(workers),
		// gRPC's own window may grow to 16 MiB for each stream, before it is read.
		grpc.StaticStreamWindowSize(smallMessage),
		grpc.StaticConnWindowSize(1 << 20),
	}, options...)...)
	server.RegisterService(s.serviceDesc(), s)
	healthpb.RegisterHealthServer(server, s.health)
	reflection.Register(server)
	return server
}

// Drain reports that the service is not healthy, against new clients. It still answers requests.
func (s *Service) Drain() {
	s.drained.Store(true)
	s.health.Shutdown()
}

// HTTP returns a handler with the pages of the reference: /json, /healthcheck and /rlconfig. Other
// sites' pages only get /healthcheck.
func (s *Service) HTTP() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", browser.Guard(http.HandlerFunc(s.serveJSON)))
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if s.drained.Load() || s.table.Load().waits {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "OK")
	})
	mux.Handle("/rlconfig", browser.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, s.table.Load().set.Dump())
	})))
	return mux
}

// bodyBound returns the most bytes that a body has, if it has a length.
func bodyBound(request *http.Request) int64 {
	if request.ContentLength < 0 || request.ContentLength > maxMessage {
		return maxMessage
	}
	return request.ContentLength
}

func (s *Service) serveJSON(w http.ResponseWriter, r *http.Request) {
	taken, err := s.reading.take(r.Context(), bodyBound(r))
	defer func() { s.reading.giveBack(taken) }()
	var body []byte
	if err == nil {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	}
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		http.Error(w, fmt.Sprintf("the body is too large: up to %d MiB are accepted", tooLong.Limit>>20), http.StatusRequestEntityTooLarge)
		return
	}
	var request pb.RateLimitRequest
	if err == nil {
		err = boundParts(partsOfJSON(body))
	}
	if err == nil {
		err = protojson.Unmarshal(escaped(body), &request)
	}
	var response *pb.RateLimitResponse
	if err == nil {
		response, err = s.ShouldRateLimit(r.Context(), &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, err := protojson.Marshal(response)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}
