package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

var (
	pairs = flag.Int("pairs", 4000, "how many pairs of configuration and request to try, a quarter with -short")
	seed  = flag.Uint64("seed", 1, "the first seed")
)

// joined has keys and values that run into each other when the reference joins them.
func joined(seed uint64) *generator {
	return &generator{
		Rand:   rand.New(rand.NewPCG(seed, 0)),
		keys:   []string{"a", "b", "a_b", "a_", "*", "a*", "_"},
		values: []string{"b", "b_c", "*", "b*", "_", "b_*", "c"},
		wild:   40,
		quota:  10,
	}
}

// Promise: Envoy configurations are accepted and refused as by envoyproxy/ratelimit.
func TestRulesAreThoseOfTheReference(t *testing.T) {
	accepted, refused, found := 0, 0, 0
	for i := range uint64(*pairs) {
		g := joined(*seed + i)
		files, merge := g.files(), g.percent(50)
		got, err := rules.Parse(files, rules.Options{Merge: merge})
		// The loop is needed for most draws.
		for tries := 0; errors.Is(err, configfile.ErrUnused) && tries < 8; tries++ {
			g.ways = nil
			files = g.files()
			got, err = rules.Parse(files, rules.Options{Merge: merge})
		}
		want, wantErr := referenceReads(files, merge)
		if hasInnerWildcard(files) {
			continue
		}
		text := func() string { return fmt.Sprintf("seed %d, merge %t:\n%s", *seed+i, merge, listing(files)) }
		require.True(t, sameVerdict(wantErr, err), "the reference says %v, rald %v, %s", wantErr, err, text())
		if err != nil {
			refused++
			continue
		}
		accepted++
		for range 20 {
			domain, d := g.descriptor(append([]string{"", "bb", "b_cc", "d"}, g.values...))
			limit := want.GetLimit(context.Background(), domain, d)
			var m rules.Match
			if of := got.Domain(domain); of != nil {
				m = rules.Find(of, d.Entries)
			}
			require.Equal(t, ruleOf(limit), described(m), "%s %v, %s", domain, d, text())
			if limit != nil {
				found++
			}
		}
	}
	t.Logf("%d accepted, %d refused, %d rules found", accepted, refused, found)
	assert.Greater(t, accepted, *pairs/3)
	assert.Greater(t, refused, *pairs/10)
	assert.Greater(t, found, 2**pairs)
}

func hasInnerWildcard(files []rules.Source) bool {
	type descriptors []struct {
		Key, Value  string
		Descriptors descriptors
	}
	var has func(descriptors) bool
	has = func(all descriptors) bool {
		for _, d := range all {
			text := d.Key
			if d.Value != "" {
				text += "_" + d.Value
			}
			if strings.Contains(strings.TrimSuffix(text, "*"), "*") || has(d.Descriptors) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(files, func(f rules.Source) bool {
		var top struct{ Descriptors descriptors }
		// Of a file that cannot be read, everything that can be read counts.
		_ = yaml.Unmarshal(f.Text, &top)
		return has(top.Descriptors)
	})
}

// sameVerdict reports whether both accept or refuse. rald may refuse text without effect.
func sameVerdict(reference, rald error) bool {
	if reference != nil || rald == nil {
		return (reference == nil) == (rald == nil)
	}
	joined, ok := rald.(interface{ Unwrap() []error })
	return ok && !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !errors.Is(err, configfile.ErrUnused) })
}

func listing(files []rules.Source) (text string) {
	for _, f := range files {
		text += fmt.Sprintf("== %s\n%s\n", f.Name, f.Text)
	}
	return text
}

type rule struct {
	Found, Unlimited bool
	Requests         uint32
	Unit             pb.RateLimitResponse_RateLimit_Unit
	Name             string
	Replaces         []string
	Shadow, Quota    bool
	Shared           []string
}

func ruleOf(l *config.RateLimit) rule {
	switch {
	case l == nil:
		return rule{}
	case l.Unlimited:
		// The number has no meaning.
		l.Limit.RequestsPerUnit = 0
	}
	return rule{true, l.Unlimited, l.Limit.RequestsPerUnit, l.Limit.Unit, l.Name, append([]string{}, l.Replaces...), l.ShadowMode, l.QuotaMode, l.ShareThresholdKeyPattern}
}

func described(m rules.Match) rule {
	r := m.Rule
	if r == nil {
		return rule{}
	}
	unit := pb.RateLimitResponse_RateLimit_Unit(pb.RateLimitResponse_RateLimit_Unit_value[r.Unit.String()])
	return rule{true, r.Unlimited, r.Requests, unit, r.Name, append([]string{}, r.Replaces...), r.Shadow, r.Quota, m.Shared}
}

func TestFilesOfTheReference(t *testing.T) {
	root := moduleDir(t, "github.com/envoyproxy/ratelimit")
	var files []string
	for _, pattern := range []string{"test/config/*.yaml", "examples/ratelimit/config/*.yaml", "integration-test/**/*.yaml", "test/integration/runtime/**/*/*.yaml"} {
		more := must.Get(filepath.Glob(filepath.Join(root, pattern)))
		files = append(files, more...)
	}
	accepted := 0
	for _, file := range files {
		text := must.Get(os.ReadFile(file))
		source := []rules.Source{{Name: filepath.Base(file), Text: text}}
		_, wantErr := referenceReads(source, false)
		_, err := rules.Parse(source, rules.Options{})
		assert.True(t, sameVerdict(wantErr, err), "%s: the reference says %v, rald %v", file, wantErr, err)
		if err == nil {
			accepted++
		}
	}
	assert.GreaterOrEqual(t, accepted, 8)
	assert.GreaterOrEqual(t, len(files)-accepted, 10)
}

// Envoy's configuration in deploy is valid by Envoy's own rules, and its descriptors have rules.
func TestDeployedEnvoyConfigurationIsValid(t *testing.T) {
	text := must.Get(os.ReadFile("../../../deploy/envoy.yaml"))
	var all any
	require.NoError(t, yaml.Unmarshal(text, &all))
	asJSON := must.Get(json.Marshal(all))
	var config bootstrap.Bootstrap
	// Unmarshal refuses unknown fields and types.
	require.NoError(t, protojson.Unmarshal(asJSON, &config))
	require.NoError(t, config.ValidateAll())

	filter := config.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0]
	var http manager.HttpConnectionManager
	require.NoError(t, filter.GetTypedConfig().UnmarshalTo(&http))
	require.NoError(t, http.ValidateAll())
	require.Len(t, http.GetHttpFilters(), 2)
	var limit ratelimit.RateLimit
	require.NoError(t, http.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&limit))
	require.NoError(t, limit.ValidateAll())

	// clusters has the clusters that speak HTTP/2.
	clusters := map[string]bool{}
	for _, c := range config.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = false
		for _, option := range c.GetTypedExtensionProtocolOptions() {
			var options upstream.HttpProtocolOptions
			require.NoError(t, option.UnmarshalTo(&options))
			require.NoError(t, options.ValidateAll())
			clusters[c.GetName()] = options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
		}
	}
	assert.True(t, clusters[limit.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName()], "gRPC needs HTTP/2")
	host := http.GetRouteConfig().GetVirtualHosts()[0]
	assert.Contains(t, clusters, host.GetRoutes()[0].GetRoute().GetCluster())

	set, err := rules.Read("../../../deploy/rald/envoy", rules.Options{})
	require.NoError(t, err)
	domain := set.Domain(limit.GetDomain())
	require.NotNil(t, domain, limit.GetDomain())
	require.Len(t, host.GetRateLimits(), 1)
	require.IsType(t, (*route.RateLimit_Action_RemoteAddress_)(nil), host.GetRateLimits()[0].GetActions()[0].GetActionSpecifier())
	found := rules.Find(domain, []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}})
	assert.NotNil(t, found.Rule, "a client's address")
}
