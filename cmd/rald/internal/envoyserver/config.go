package envoyserver

import (
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"google.golang.org/grpc/health"
)

// Config configures a Service. Families are required.
type Config struct {
	// Families keep only this service's counts. The caller closes them after the last request.
	Families *families.Families
	// Shadow admits every request, like SHADOW_MODE in the reference.
	Shadow bool
	// Quota treats every rule as if it had quota_mode, like QUOTA_MODE in the reference.
	Quota bool
	// Metadata puts the request, and the metadata of rules that it passed, in the dynamic metadata of
	// responses, like RESPONSE_DYNAMIC_METADATA in the reference.
	Metadata bool
	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset to responses, like
	// LIMIT_RESPONSE_HEADERS_ENABLED in the reference.
	Headers bool
}

// Service is the rate limit service. New makes it. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitServiceServer
	config Config
	table  atomic.Pointer[table]
	// replaced has the tables since the last Release.
	replaced []*table
	health   *health.Server
	drained  atomic.Bool
	reading  budget
}
