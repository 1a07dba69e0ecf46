package envoyserver

import (
	"context"
	"math"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// New returns a Service with the given rules, or the error of an engine. Without rules, nil, it is
// not healthy, and requests are Unavailable, until Prepare has put some in force.
func New(config Config, set *rules.Set) (*Service, error) {
	service := &Service{config: config, health: health.NewServer(), reading: newBudget()}
	waits := set == nil
	if waits {
		set = &rules.Set{}
	}
	commit, err := service.Prepare(set)
	if err != nil {
		return nil, err
	}
	commit()
	if waits {
		service.table.Load().waits = true
		service.tellHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	}
	return service, service.Release()
}

// ShouldRateLimit implements pb.RateLimitServiceServer. InvalidArgument reports a request that the
// operator must mend; nothing was counted then. No text in a request's descriptors is an error, as
// clients choose it. Any other error says that there is no decision.
func (s *Service) ShouldRateLimit(ctx context.Context, request *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if request.GetDomain() == "" {
		return nil, status.Error(codes.InvalidArgument, "rate limit domain must not be empty")
	}
	if len(request.GetDescriptors()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "rate limit descriptor list must not be empty")
	}
	table, done := s.begin()
	defer done()
	if table.waits {
		return nil, status.Error(codes.Unavailable, "the rules have not come yet: ask again later")
	}
	domain := table.set.Domain(request.Domain)
	asks := make([]ask, len(request.Descriptors))
	if domain != nil {
		var err error
		if asks, err = table.find(asks, domain, request); err != nil {
			return nil, err
		}
		replace(asks)
	}
	var err error
	if domain != nil && domain.AllOrNothing {
		err = decideTogether(ctx, asks, s.config.Quota)
	} else {
		err = decide(ctx, asks)
	}
	if err != nil {
		return nil, failed(ctx, err)
	}
	response := s.answer(asks, len(request.Descriptors))
	if s.config.Metadata {
		response.DynamicMetadata = metadata(request, asks)
	}
	return response, nil
}

func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unavailable, "a limit could not be asked: ask again later")
}

func (t *table) find(asks []ask, domain *rules.Domain, request *pb.RateLimitRequest) ([]ask, error) {
	var room [256]byte
	for i, rateLimitDescriptor := range request.Descriptors {
		a := &asks[i]
		var match rules.Match
		if limit := rateLimitDescriptor.GetLimit(); limit != nil {
			unit := rules.ParseUnit(limit.Unit.String())
			if unit == 0 {
				return nil, status.Errorf(codes.InvalidArgument,
					"descriptors[%d].limit.unit is %v: SECOND, MINUTE, HOUR, DAY, MONTH and YEAR are accepted", i, limit.Unit)
			}
			a.held = t.override(limit.RequestsPerUnit, unit)
		} else if match = rules.Find(domain, rateLimitDescriptor.GetEntries()); match.Rule != nil {
			a.held = t.held[match.Rule]
		} else {
			continue
		}
		a.n, a.refund = hits(request, rateLimitDescriptor), rateLimitDescriptor.GetIsNegativeHits()
		if a.free = a.Unlimited; a.free {
			continue
		}
		a.key = bounded(appendKey(room[:0], request.Domain, rateLimitDescriptor.GetEntries(), match))
		if a.more == nil {
			continue
		}
		main := *a
		group := []int{i}
		for j, of := range main.more {
			group = append(group, len(asks))
			asks = append(asks, ask{held: of, key: moreKey(main.key, j), n: main.n, refund: main.refund, further: true, main: i})
		}
		for _, j := range group {
			asks[j].group = group
		}
	}
	return asks, nil
}

// hits returns a descriptor's hits: its own, which may be 0 to look, or the request's, at least 1.
func hits(request *pb.RateLimitRequest, descriptor *common.RateLimitDescriptor) int64 {
	if descriptor.GetHitsAddend() != nil {
		return int64(min(descriptor.HitsAddend.Value, math.MaxInt64))
	}
	return max(int64(request.HitsAddend), 1)
}

// replace drops the limits whose names another descriptor's rule replaces, even an unlimited rule.
func replace(asks []ask) {
	var names []string
	for i := range asks {
		if held := asks[i].held; held != nil {
			names = append(names, held.Replaces...)
		}
	}
	if names == nil {
		return
	}
	for i := range asks {
		held := asks[i].held
		if held == nil || held.Name == "" {
			continue
		}
		for _, name := range names {
			if name == held.Name {
				asks[i].held = nil
			}
		}
	}
}

func (s *Service) answer(asks []ask, descriptors int) *pb.RateLimitResponse {
	response := &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OK,
		Statuses:    make([]*pb.RateLimitResponse_DescriptorStatus, descriptors),
	}
	// closest is the status closest to its limit.
	var closest *pb.RateLimitResponse_DescriptorStatus
	minRemaining := uint32(math.MaxUint32)
	quotas, exceeded := 0, 0
	for i := range response.Statuses {
		ask := &asks[i]
		for _, j := range ask.group {
			ask.status = closer(ask.status, asks[j].status)
		}
		switch {
		case ask.free:
			ask.status = &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK, LimitRemaining: math.MaxUint32}
		case ask.held == nil:
			ask.status = &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
		}
		if ask.status.CurrentLimit != nil && ask.status.LimitRemaining < minRemaining {
			closest, minRemaining = ask.status, ask.status.LimitRemaining
		}
		isQuota := ask.isQuota(s.config.Quota)
		if isQuota {
			quotas++
		}
		switch {
		case ask.passed():
		case isQuota:
			exceeded++
		default:
			response.OverallCode = pb.RateLimitResponse_OVER_LIMIT
			closest, minRemaining = ask.status, 0
		}
		response.Statuses[i] = ask.status
	}
	if quotas > 0 && exceeded == quotas {
		response.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	if s.config.Headers && closest != nil {
		response.ResponseHeadersToAdd = headers(closest)
	}
	if s.config.Shadow {
		response.OverallCode = pb.RateLimitResponse_OK
	}
	return response
}

// closer returns the status that a client must heed: a refusal, the longest first, or the fewest
// hits left.
func closer(a, b *pb.RateLimitResponse_DescriptorStatus) *pb.RateLimitResponse_DescriptorStatus {
	switch {
	case a == nil || b == nil:
		return a
	case a.Code != b.Code:
		if b.Code == pb.RateLimitResponse_OVER_LIMIT {
			return b
		}
	case a.Code == pb.RateLimitResponse_OK && b.LimitRemaining != a.LimitRemaining:
		if b.LimitRemaining < a.LimitRemaining {
			return b
		}
	case b.DurationUntilReset.GetSeconds() > a.DurationUntilReset.GetSeconds():
		return b
	}
	return a
}

func headers(status *pb.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	number := func(name string, n int64) *core.HeaderValue {
		return &core.HeaderValue{Key: name, Value: strconv.FormatInt(n, 10)}
	}
	return []*core.HeaderValue{
		number("RateLimit-Limit", int64(status.CurrentLimit.RequestsPerUnit)),
		number("RateLimit-Remaining", int64(status.LimitRemaining)),
		number("RateLimit-Reset", status.DurationUntilReset.GetSeconds()),
	}
}
