package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	management "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
)

// shop has a limit for each user.
func shop(unit config.RateLimitUnit, requests uint32) *config.RateLimitConfig {
	return &config.RateLimitConfig{Name: "web", Domain: "shop", Descriptors: []*config.RateLimitDescriptor{{
		Key: "user", RateLimit: &config.RateLimitPolicy{Unit: unit, RequestsPerUnit: requests},
	}}}
}

// lab is a management server of go-control-plane and a client, with a network in memory.
type lab struct {
	t        *testing.T
	snapshot cache.SnapshotCache
	// said is what the client said, without repeats: node, version and fault.
	said     []string
	last     string
	listener *bufconn.Listener
	server   *grpc.Server
	client   *Client
	// put has the rules that came into force.
	put []string
	// refuses is the error with which put refuses rules that parse.
	refuses error
	// requests counts the requests of the client, with repeats.
	requests atomic.Int64
	log      logbuffer.Buffer
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, snapshot: cache.NewSnapshotCache(true, cache.IDHash{}, nil)}
	l.client = &Client{
		Server: "127.0.0.1:1", Node: "edge", Credentials: insecure.NewCredentials(), Log: slog.New(slog.NewTextHandler(&l.log, nil)),
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return l.listener.DialContext(ctx) },
		Set: func(set *rules.Set) error {
			if l.refuses == nil {
				l.put = append(l.put, set.Dump())
			}
			return l.refuses
		},
	}
	l.listener = bufconn.Listen(1 << 16)
	return l
}

func (l *lab) serve() {
	l.listener = bufconn.Listen(1 << 16)
	l.server, l.last = grpc.NewServer(), ""
	hear := management.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
		l.requests.Add(1)
		if said := fmt.Sprintf("%s %q %s", r.Node.GetId(), r.VersionInfo, r.ErrorDetail.GetMessage()); said != l.last {
			l.said, l.last = append(l.said, said), said
		}
		return nil
	}}
	discovery.RegisterAggregatedDiscoveryServiceServer(l.server, management.NewServer(l.t.Context(), l.snapshot, hear))
	go func() { _ = l.server.Serve(l.listener) }()
}

func (l *lab) publish(version string, resources ...types.Resource) {
	s, err := cache.NewSnapshot(version, map[string][]types.Resource{TypeURL: resources})
	require.NoError(l.t, err)
	require.NoError(l.t, l.snapshot.SetSnapshot(l.t.Context(), "edge", s))
	time.Sleep(maxPause + firstPause)
}

func (l *lab) saw(want ...string) {
	l.t.Helper()
	synctest.Wait()
	assert.Equal(l.t, want, l.said)
	l.said = nil
}

func (l *lab) stats(good, bad int, failing bool) {
	l.t.Helper()
	reads := &l.client.Reads
	assert.Equal(l.t, []any{good, bad, failing}, []any{int(reads.Good.Load()), int(reads.Bad.Load()), reads.Fault() != nil})
}

// The fault names domain, key and reason. Versions are those in force, also on another connection.
//
// Promise: A management server configures Envoy's service; faulty rules are refused whole, and the old stay.
func TestRulesOfAManagementServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.client.Run(ctx) }()
		require.NoError(t, l.listener.Close())
		synctest.Wait()
		l.stats(0, 0, true)
		assert.Contains(t, l.log.String(), "the management server is away")

		l.serve()
		time.Sleep(maxPause)
		l.saw(`edge "" `)
		l.stats(0, 0, true)
		l.publish("1", shop(config.RateLimitUnit_MINUTE, 5))
		l.saw(`edge "1" `)
		assert.Equal(t, []string{"shop.user: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false\n"}, l.put)
		l.stats(1, 0, false)

		good, bad := shop(config.RateLimitUnit_HOUR, 7), shop(config.RateLimitUnit_UNKNOWN, 7)
		good.Name, good.Domain = "api", "api"
		l.publish("2", good, bad)
		l.saw(`edge "1" domain "shop" of resource "web": descriptors[0].rate_limit.unit: "" is no unit: second, minute, hour, day, week, month and year are accepted`)
		later := shop(config.RateLimitUnit_MINUTE, 5)
		later.Descriptors[0].RateLimit.ProtoReflect().SetUnknown([]byte{0xf8, 0x01, 1})
		l.publish("3", later)
		l.saw(`edge "1" domain "shop" of resource "web": descriptors[0].rate_limit: a field here is of a later version of the protocol, which is not accepted`)
		long := "no room" + strings.Repeat(".", maxRefusal)
		l.refuses = errors.New(long)
		l.publish("4", good)
		l.saw(`edge "1" ` + long[:maxRefusal] + " ...")
		l.stats(1, 3, true)
		assert.Len(t, l.put, 1)
		l.refuses = nil
		l.publish("5", good, shop(config.RateLimitUnit_DAY, 0))
		l.saw(`edge "5" `)
		assert.Len(t, l.put, 2)
		l.stats(2, 3, false)

		l.server.Stop()
		synctest.Wait()
		l.stats(2, 3, true)
		l.snapshot.ClearSnapshot("edge")
		l.serve()
		time.Sleep(maxPause)
		l.saw(`edge "5" `)
		// The figures change though there was no response.
		l.stats(2, 3, false)
		l.publish("6")
		l.saw(`edge "6" `)
		assert.Equal(t, "", l.put[len(l.put)-1], "a configuration without rules")
		cancel()
		<-ended
		l.server.Stop()
	})
}

// go-control-plane sends a refused configuration again at once.
func TestRepeatedRefusalsWaitLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		l.serve()
		go func() { defer close(ended); l.client.Run(ctx) }()
		synctest.Wait()
		refusals := func(within time.Duration) int64 {
			synctest.Wait()
			before := l.requests.Load()
			time.Sleep(within)
			synctest.Wait()
			return l.requests.Load() - before
		}
		// The client waits for 31 seconds.
		l.publish("1", shop(config.RateLimitUnit_UNKNOWN, 7))
		// The client asks after 0, 1, 3, 7, 15 and 31 seconds.
		doubled := 6
		assert.InDelta(t, doubled+1, l.requests.Load(), 1, "with the first request")
		assert.InDelta(t, 20, refusals(20*maxPause), 1)
		l.publish("2", shop(config.RateLimitUnit_MINUTE, 5))
		l.stats(1, 1, false)
		l.publish("3", shop(config.RateLimitUnit_UNKNOWN, 7))
		assert.Positive(t, refusals(maxPause), "another refusal begins anew")
		cancel()
		<-ended
		l.server.Stop()
	})
}

// Everything of the message becomes the same as in a file.
func TestResourcesAreReadAsFiles(t *testing.T) {
	rateLimit := &config.RateLimitConfig{Name: "web", Domain: `a"b`, Descriptors: []*config.RateLimitDescriptor{{
		Key: "user", Value: "1\u2028é", DetailedMetric: true, ShadowMode: true,
		RateLimit: &config.RateLimitPolicy{
			Name: "own", Unit: config.RateLimitUnit_YEAR, RequestsPerUnit: 1<<32 - 1, Replaces: []*config.RateLimitReplace{{Name: "other"}},
		},
	}, {
		Key: "team", RateLimit: &config.RateLimitPolicy{Name: "other", Unit: config.RateLimitUnit_SECOND},
		Descriptors: []*config.RateLimitDescriptor{{Key: "free", RateLimit: &config.RateLimitPolicy{Unlimited: true}}},
	}}}
	packed, err := cache.MarshalResource(rateLimit)
	require.NoError(t, err)
	resource := &anypb.Any{TypeUrl: TypeURL, Value: packed}
	got, err := parse([]*anypb.Any{resource}, rules.Options{})
	require.NoError(t, err)
	want, err := rules.Parse([]rules.Source{{Name: "file", Text: []byte(`
domain: 'a"b'
descriptors:
  - {key: user, value: "1\u2028é", detailed_metric: true, shadow_mode: true, rate_limit: {name: own, unit: year, requests_per_unit: 4294967295, replaces: [{name: other}]}}
  - {key: team, rate_limit: {name: other, unit: second, requests_per_unit: 0}, descriptors: [{key: free, rate_limit: {unlimited: true}}]}
`)}}, rules.Options{})
	require.NoError(t, err)
	for i, rule := range want.Rules() {
		rule.File, rule.Line = got.Rules()[i].File, got.Rules()[i].Line
	}
	assert.Equal(t, want.Rules(), got.Rules())
	assert.Len(t, got.Unused(), 1)
	other, err := cache.MarshalResource(shop(config.RateLimitUnit_DAY, 1))
	require.NoError(t, err)
	second := &anypb.Any{TypeUrl: TypeURL, Value: other}
	got, err = parse([]*anypb.Any{resource, second}, rules.Options{})
	require.NoError(t, err)
	swapped, err := parse([]*anypb.Any{second, resource}, rules.Options{})
	require.NoError(t, err)
	assert.Equal(t, got.Rules(), swapped.Rules())
	resource.TypeUrl = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	_, err = parse([]*anypb.Any{resource, resource}, rules.Options{})
	assert.ErrorContains(t, err, "resource 1: ")
}
