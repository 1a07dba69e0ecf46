package oracle

import (
	"encoding/json"
	"os"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ral-limiter/ral/cmd/rald/rules"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// Envoy's configuration in deploy is valid by Envoy's own rules, and its descriptors have rules.
func TestDeployedEnvoy(t *testing.T) {
	text := must.Get(os.ReadFile("../../deploy/envoy.yaml"))
	var all any
	require.NoError(t, yaml.Unmarshal(text, &all))
	asJSON := must.Get(json.Marshal(all))
	var config bootstrap.Bootstrap
	require.NoError(t, protojson.Unmarshal(asJSON, &config)) // refuses unknown fields and types
	require.NoError(t, config.ValidateAll())

	filter := config.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0]
	var http manager.HttpConnectionManager
	require.NoError(t, filter.GetTypedConfig().UnmarshalTo(&http))
	require.NoError(t, http.ValidateAll())
	require.Len(t, http.GetHttpFilters(), 2)
	var limit ratelimit.RateLimit
	require.NoError(t, http.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&limit))
	require.NoError(t, limit.ValidateAll())

	clusters := map[string]bool{} // those that speak HTTP/2
	for _, c := range config.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = false
		for _, option := range c.GetTypedExtensionProtocolOptions() {
			var of upstream.HttpProtocolOptions
			require.NoError(t, option.UnmarshalTo(&of))
			require.NoError(t, of.ValidateAll())
			clusters[c.GetName()] = of.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
		}
	}
	assert.True(t, clusters[limit.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName()], "gRPC needs HTTP/2")
	host := http.GetRouteConfig().GetVirtualHosts()[0]
	assert.Contains(t, clusters, host.GetRoutes()[0].GetRoute().GetCluster())

	set, err := rules.Read("../../deploy/rald/envoy", rules.Options{})
	require.NoError(t, err)
	domain := set.Domain(limit.GetDomain())
	require.NotNil(t, domain, limit.GetDomain())
	require.Len(t, host.GetRateLimits(), 1)
	require.IsType(t, (*route.RateLimit_Action_RemoteAddress_)(nil), host.GetRateLimits()[0].GetActions()[0].GetActionSpecifier())
	found := rules.Find(domain, []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}})
	assert.NotNil(t, found.Rule, "a client's address")
}
