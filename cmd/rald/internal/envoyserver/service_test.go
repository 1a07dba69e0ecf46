package envoyserver

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

// door is a Service with its file of rules.
type door struct {
	*Service
	t    *testing.T
	file string
	keep *families.Families
}

func open(t *testing.T, text string) door {
	t.Helper()
	return openIn(t, families.Config{}, Config{Headers: true}, text)
}

func openIn(t *testing.T, of families.Config, config Config, text string) door {
	t.Helper()
	keep, err := families.New(of)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, keep.Close()) })
	d := door{t: t, file: filepath.Join(t.TempDir(), "rules.yaml"), keep: keep}
	d.write(text)
	set, err := rules.Read(filepath.Dir(d.file), rules.Options{})
	require.NoError(t, err)
	config.Families = keep
	d.Service, err = New(config, set)
	require.NoError(t, err)
	return d
}

func (d door) reload() error {
	set, err := rules.Read(filepath.Dir(d.file), rules.Options{})
	if err != nil {
		return err
	}
	commit, err := d.Prepare(set)
	if err == nil {
		commit()
	}
	assert.NoError(d.t, d.Release())
	return err
}

func (d door) write(config string) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(d.file, []byte(config), 0o600))
}

// entries parses "key=value key=value".
func entries(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func hitting(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func refunding(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hitting(d, n)
}

// ask returns the code and the remaining hits of each limit.
func (d door) ask(descriptors ...*common.RateLimitDescriptor) (pb.RateLimitResponse_Code, []uint32) {
	d.t.Helper()
	response, err := d.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "d", Descriptors: descriptors})
	require.NoError(d.t, err)
	var remaining []uint32
	for _, s := range response.Statuses {
		remaining = append(remaining, s.LimitRemaining)
	}
	return response.OverallCode, remaining
}

func (d door) expect(code pb.RateLimitResponse_Code, remaining uint32, descriptor *common.RateLimitDescriptor) {
	d.t.Helper()
	got, left := d.ask(descriptor)
	assert.Equal(d.t, code, got, "%v", descriptor)
	assert.Equal(d.t, []uint32{remaining}, left, "%v", descriptor)
}

const fixed = `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: none
    rate_limit: {unit: year, requests_per_unit: 0}
`

// The oracle compares hits with the reference's. Limits of policies count no refused hits.
func TestHitsAreTakenAndRefundedByLimit(t *testing.T) {
	d := open(t, fixed+`
  - {key: funnel, rate_limit: {limit: "funnel 10, 1/h", name: x}}
  - {key: window, rate_limit: {limit: "sliding 10/h"}}
`)
	d.expect(over, 0, entries("none=x"))
	d.expect(over, 0, hitting(entries("a=z"), math.MaxUint64))
	d.expect(over, 0, hitting(entries("a=z"), 0))
	for _, key := range []string{"funnel=x", "window=x"} {
		d.expect(ok, 2, hitting(entries(key), 8))
		d.expect(over, 2, hitting(entries(key), 5))
		d.expect(ok, 0, hitting(entries(key), 2))
	}
	for key, left := range map[string]uint32{"a=r": 2, "funnel=r": 3} {
		d.expect(ok, 0, hitting(entries(key), 10))
		d.expect(over, 0, entries(key))
		d.expect(ok, left, refunding(entries(key), 3))
		d.expect(ok, 10, refunding(entries(key), 100))
		// The level is never above full.
		d.expect(ok, 10, refunding(entries(key), 1))
	}
	response, err := d.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{
		Domain: "d", Descriptors: []*common.RateLimitDescriptor{entries("funnel=x"), entries("window=y")},
	})
	require.NoError(t, err)
	refused, passed := response.Statuses[0], response.Statuses[1]
	assert.Equal(t, over, refused.Code)
	assert.Equal(t, "x", refused.CurrentLimit.Name)
	assert.EqualValues(t, 10, refused.CurrentLimit.RequestsPerUnit)
	assert.Equal(t, pb.RateLimitResponse_RateLimit_UNKNOWN, refused.CurrentLimit.Unit, "ten units drain in ten hours")
	assert.InDelta(t, 3600, refused.DurationUntilReset.Seconds, 30, "until one has drained")
	never, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{hitting(entries("funnel=new"), 11)}})
	require.NoError(t, err)
	assert.EqualValues(t, 36000, never.Statuses[0].DurationUntilReset.Seconds)
	assert.Equal(t, pb.RateLimitResponse_RateLimit_HOUR, passed.CurrentLimit.Unit)
	assert.EqualValues(t, 9, passed.LimitRemaining)
}

// The reference joins the texts of descriptors, so that different ones may count together.
//
// Promise: Descriptors share counts only by `share_threshold`.
func FuzzKeys(f *testing.F) {
	f.Add("d", "k", "v", "d|k", "v", "")
	f.Add(`d\`, "k|", "v", "d", `\k`, "v=")
	f.Add("d", "a", "b_c", "d", "a_b", "c")
	f.Add("d", "a=b", "c", "d", "a", "b=c")
	f.Add("d", "a|b", "c", "d|a", "b", "c")
	f.Add("d", "a", "x|b=y", "d", "a", `x\|b\=y`)
	f.Fuzz(func(t *testing.T, domain, key, value, otherDomain, otherKey, otherValue string) {
		statusOf := func(domain string, pairs ...string) string {
			d := &common.RateLimitDescriptor{}
			for i := 0; i < len(pairs); i += 2 {
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
			}
			return string(appendKey(nil, domain, d.Entries, rules.Match{}))
		}
		same := domain == otherDomain && key == otherKey && value == otherValue
		if got := statusOf(domain, key, value) == statusOf(otherDomain, otherKey, otherValue); got != same {
			t.Errorf("%q", statusOf(domain, key, value))
		}
		if statusOf(domain, key, value, otherKey, otherValue) == statusOf(otherDomain, key, value) || statusOf(domain) == candidateKey(statusOf(otherDomain)) {
			t.Errorf("%q", statusOf(domain, key, value, otherKey, otherValue))
		}
	})
}

// Promise: A refusal in an `all_or_nothing` domain consumes nothing.
func TestRefusalConsumesNothingInAllOrNothing(t *testing.T) {
	const text = `
domain: d
all_or_nothing: true
descriptors:
  - {key: wide, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: narrow, rate_limit: {limit: "funnel 2, 1/h"}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: other, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: zero, rate_limit: {unit: year, requests_per_unit: 0}}
`
	d := open(t, text)
	for i, want := range [][]uint32{{99, 1, 0, 0, 1}, {98, 0, 0, 0, 0}, {98, 0, 0, 0, 0}, {98, 0, 0, 0, 0}} {
		code, remaining := d.ask(entries("wide=x"), entries("narrow=x"), entries("shadow=x"), entries("quota=x"), entries("other=x"))
		assert.Equal(t, i >= 2, code == over, "%d: shadow and an exceeded quota beside another refuse nothing", i)
		assert.Equal(t, want, remaining, i)
	}
	for _, c := range []struct {
		code pb.RateLimitResponse_Code
		// left is what is left of wide.
		left uint32
		with []*common.RateLimitDescriptor
	}{
		// No quota has room.
		{over, 98, []*common.RateLimitDescriptor{entries("quota=x"), entries("other=x")}},
		{over, 98, []*common.RateLimitDescriptor{entries("quota=x"), entries("narrow=x")}},
		// The limit refuses.
		{over, 98, []*common.RateLimitDescriptor{entries("narrow=x"), entries("quota=y")}},
		{over, 98, []*common.RateLimitDescriptor{entries("narrow=x"), hitting(entries("quota=y"), 0)}},
		{ok, 97, []*common.RateLimitDescriptor{entries("quota=x"), hitting(entries("quota=y"), 0)}},
		{ok, 96, []*common.RateLimitDescriptor{entries("quota=x"), refunding(entries("other=x"), 1)}},
		{ok, 95, []*common.RateLimitDescriptor{entries("quota=x"), entries("other=x")}},
	} {
		code, _ := d.ask(append(c.with, entries("wide=x"))...)
		assert.Equal(t, c.code, code, c.with)
		d.expect(ok, c.left, hitting(entries("wide=x"), 0))
	}
	// No refusal took from the quota.
	d.expect(ok, 0, entries("quota=y"))
	d.expect(ok, 98, refunding(entries("wide=x"), 3))
	code, remaining := d.ask(entries("wide=x"), entries("zero=x"))
	assert.Equal(t, over, code)
	assert.Equal(t, []uint32{98, 0}, remaining)
	d.expect(over, 98, hitting(entries("wide=x"), 99))
	d.expect(ok, 0, hitting(entries("wide=x"), 98))
	d.expect(ok, 100, refunding(entries("wide=x"), 1000))

	// Without the key all but the funnel's refused hits count.
	d.write(strings.ReplaceAll(text, "all_or_nothing: true", ""))
	require.NoError(t, d.reload())
	code, remaining = d.ask(entries("wide=x"), entries("narrow=x"))
	assert.Equal(t, over, code)
	assert.Equal(t, []uint32{99, 0}, remaining)
}

// A limit that refuses does so beside any quota, so it is asked once. With Redis a further question
// would take another round trip.
func TestFurtherQuotasAreNotAskedInVain(t *testing.T) {
	d := open(t, `
domain: d
all_or_nothing: true
descriptors:
  - {key: limit, rate_limit: {limit: "sliding 1/h"}}
  - {key: quota, quota_mode: true, rate_limit: {limit: "funnel 10, 1/h"}}
`)
	quotas := []*common.RateLimitDescriptor{entries("limit=x"), entries("quota=a"), entries("quota=b"), entries("quota=c")}
	refusals := func() uint64 {
		for family := range d.keep.All() {
			if strings.HasPrefix(family.Limit().String(), "sliding") {
				return families.EngineOf(family).Stats().Refused
			}
		}
		return 0
	}
	code, _ := d.ask(quotas...)
	require.Equal(t, ok, code)
	for _, left := range []uint32{9, 0} {
		before := refusals()
		code, remaining := d.ask(quotas...)
		assert.Equal(t, over, code)
		assert.Equal(t, []uint32{0, left, 9, 9}, remaining, "of the request that was admitted")
		assert.EqualValues(t, 1, refusals()-before, "the first quota has %d left", left)
		d.expect(ok, 0, hitting(entries("quota=a"), uint64(left)))
	}
}

// Promise: Envoy's quotas refuse a request only together.
func TestQuotasRefuseOnlyTogether(t *testing.T) {
	const text = `
domain: d
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}, metadata: {of: {a: [1, yes], both: {x: ~}}, first: a}}
  - {key: b, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}, metadata: {of: {b: 1.5, both: {y: z}}, first: b}}
  - {key: c, rate_limit: {unit: year, requests_per_unit: 3}}
`
	ofA := map[string]any{"a": []any{1., true}, "both": map[string]any{"x": nil}}
	ofB := map[string]any{"b": 1.5, "both": map[string]any{"y": "z"}}
	both := map[string]any{"a": ofA["a"], "b": 1.5, "both": map[string]any{"x": nil, "y": "z"}}
	d := openIn(t, families.Config{}, Config{Metadata: true}, text)
	request := &pb.RateLimitRequest{Domain: "d", HitsAddend: 1, Descriptors: []*common.RateLimitDescriptor{entries("a=x"), entries("b=x"), entries("c=x")}}
	for _, want := range []struct {
		all, a, b pb.RateLimitResponse_Code
		metadata  any
	}{
		{ok, ok, ok, map[string]any{"of": both, "first": "a"}},
		{ok, over, ok, map[string]any{"of": ofB, "first": "b"}},
		{over, over, over, nil},
	} {
		response, err := d.ShouldRateLimit(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, want.all, response.OverallCode)
		assert.Equal(t, []pb.RateLimitResponse_Code{want.a, want.b, ok}, []pb.RateLimitResponse_Code{response.Statuses[0].Code, response.Statuses[1].Code, response.Statuses[2].Code})
		fields := response.DynamicMetadata.AsMap()
		assert.Equal(t, want.metadata, fields["metadata"])
		assert.Equal(t, []any{map[string]any{"entries": []any{"a=x"}}, map[string]any{"entries": []any{"b=x"}}, map[string]any{"entries": []any{"c=x"}}}, fields["descriptors"])
		assert.Equal(t, []any{"d", 1.}, []any{fields["domain"], fields["hitsAddend"]})
	}
	code, _ := d.ask(entries("a=x"), entries("b=x"))
	assert.Equal(t, over, code)
	code, _ = d.ask(entries("c=x"))
	assert.Equal(t, over, code)
}

// In shadow no limit refuses a request. In quota mode each counts separately, and none has always room.
func TestModesOfAllRules(t *testing.T) {
	const text = "domain: d\nall_or_nothing: true\ndescriptors:\n" +
		"  - {key: wide, rate_limit: {unit: year, requests_per_unit: 9}}\n  - {key: one, rate_limit: {unit: year, requests_per_unit: 1}}\n"
	for _, c := range []struct {
		config Config
		other  string
		// code is the code of the second request.
		code pb.RateLimitResponse_Code
		// wide is what is left of wide then.
		wide uint32
	}{
		{Config{Shadow: true}, "one=y", ok, 8},
		{Config{Quota: true}, "one=y", ok, 7},
		{Config{Quota: true}, "one=x", ok, 7},
		{Config{Quota: true}, "none=x", ok, 7},
	} {
		d := openIn(t, families.Config{}, c.config, text)
		d.ask(entries("wide=x"), entries("one=x"))
		code, remaining := d.ask(entries("wide=x"), entries("one=x"), entries(c.other))
		assert.Equal(t, c.code, code, c)
		assert.Equal(t, c.wide, remaining[0], c)
	}
	d := openIn(t, families.Config{}, Config{Quota: true}, text)
	d.expect(ok, 0, entries("one=x"))
	d.expect(over, 0, entries("one=x"))
	code, _ := d.ask(entries("one=x"), entries("none=x"))
	assert.Equal(t, ok, code)
}

// Promise: Hits take from all limits of an Envoy rule or none; the binding limit answers.
func TestSeveralLimitsOfARule(t *testing.T) {
	const text = `
domain: d
descriptors:
  - {key: a, rate_limit: {name: n, limit: ["window 3/h", "funnel 5, 1/d", "window 9/h"]}}
  - {key: s, shadow_mode: true, rate_limit: {limit: [window 2/h, window 1/h]}}
  - {key: b, rate_limit: {limit: ["funnel 10, 1/s", window 12/h]}}
  - {key: q, quota_mode: true, rate_limit: {limit: [window 2/h, window 1/d]}}
`
	for _, head := range []string{"", "all_or_nothing: true"} {
		d := open(t, head+text)
		d.expect(ok, 1, hitting(entries("a=x"), 2))
		d.expect(over, 1, hitting(entries("a=x"), 2))
		d.expect(ok, 0, entries("a=x"))
		d.expect(over, 0, entries("a=x"))
		// No limit counts refused hits.
		d.expect(ok, 2, refunding(entries("a=x"), 2))
		d.expect(ok, 2, hitting(entries("a=x"), 0))
		d.expect(ok, 3, hitting(entries("a=y"), 0))
		for i, left := range []uint32{0, 0, 0} {
			response, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{entries("s=x"), entries("a=z")}})
			require.NoError(t, err)
			require.Len(t, response.Statuses, 2)
			assert.Equal(t, []any{ok, left, uint32(2 - i)}, []any{response.OverallCode, response.Statuses[0].LimitRemaining, response.Statuses[1].LimitRemaining})
			assert.Equal(t, "n", response.Statuses[1].CurrentLimit.Name)
		}
		d.expect(ok, 0, entries("q=x"))
		d.expect(over, 0, entries("q=x"))
		code, left := d.ask(entries("q=x"), entries("q=y"), hitting(entries("a=w"), 3))
		assert.Equal(t, ok, code)
		assert.Equal(t, []uint32{0, 0, 0}, left)
		code, _ = d.ask(entries("q=x"), entries("q=y"))
		assert.Equal(t, over, code)
		got := map[string][3]uint64{}
		for rule, c := range d.Counts() {
			got[rule.Path] = [3]uint64{c.Passed.Load(), c.Refused.Load(), c.Returned.Load()}
		}
		assert.Equal(t, [3]uint64{6, 2, 2}, got["d.a"])
		assert.Equal(t, [3]uint64{1, 2, 0}, got["d.s"], "by the second limit, in shadow too")
		d.expect(ok, 1, hitting(entries("b=x"), 9))
		late, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{hitting(entries("b=x"), 4)}})
		require.NoError(t, err)
		assert.Greater(t, late.Statuses[0].DurationUntilReset.GetSeconds(), int64(3000), "both refuse, and the window for longer")
		response, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{hitting(entries("a=v"), 4)}})
		require.NoError(t, err)
		assert.EqualValues(t, 3, response.Statuses[0].CurrentLimit.RequestsPerUnit)
		d = open(t, head+strings.Replace(text, "window 3/h", "window 30/h", 1))
		d.ask(hitting(entries("a=x"), 5))
		response, err = d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{entries("a=x")}})
		require.NoError(t, err)
		assert.EqualValues(t, 5, response.Statuses[0].CurrentLimit.RequestsPerUnit, "of the funnel, which refuses")
		// The third limit has 9 less 5 units left.
		d.expect(ok, 4, refunding(entries("a=x"), 4))
	}
}

func TestCandidateCountsItsOwnDecisions(t *testing.T) {
	d := open(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 3, candidate: "window 1/365d aligned"}}
  - {key: b, rate_limit: {limit: "at most 1/h", candidate: "at most 2/h"}}
`)
	for range 4 {
		d.ask(entries("a=x"), entries("b=x"))
	}
	// A hit of 0 is not counted.
	d.ask(hitting(entries("a=x"), 0))
	d.ask(refunding(entries("b=x"), 7))
	got := map[string][5]uint64{}
	for rule, c := range d.Counts() {
		got[rule.Path] = [5]uint64{c.Passed.Load(), c.Refused.Load(), c.WouldPass.Load(), c.WouldRefuse.Load(), c.Returned.Load()}
	}
	assert.Equal(t, map[string][5]uint64{"d.a": {3, 1, 0, 2, 0}, "d.b": {1, 3, 1, 0, 7}}, got)
}

// The reference ends its process on these.
func TestBadRequestIsAnInvalidArgument(t *testing.T) {
	d := open(t, fixed)
	override := entries("a=x")
	override.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3}
	for _, c := range []struct {
		request *pb.RateLimitRequest
		want    string
	}{
		{&pb.RateLimitRequest{}, "rate limit domain must not be empty"},
		{&pb.RateLimitRequest{Domain: "d"}, "rate limit descriptor list must not be empty"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{override}}, "descriptors[0].limit.unit is UNKNOWN: SECOND, MINUTE, HOUR, DAY, MONTH and YEAR are accepted"},
	} {
		_, err := d.ShouldRateLimit(context.Background(), c.request)
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		assert.ErrorContains(t, err, c.want)
	}
	override.Limit.Unit = types.RateLimitUnit_YEAR
	d.expect(ok, 2, override)
	// The request counts with the rule.
	d.expect(ok, 8, entries("a=x"))
	code, remaining := d.ask(nil, &common.RateLimitDescriptor{})
	assert.Equal(t, ok, code)
	assert.Equal(t, []uint32{0, 0}, remaining)
}

// Promise: A reload applies all rules at once, or none if faulty; used hits stay.
func TestReloadKeepsUsedHits(t *testing.T) {
	d := open(t, fixed)
	d.expect(ok, 2, hitting(entries("a=x"), 8))
	d.write(strings.Replace(fixed, "requests_per_unit: 10", "requests_per_unit: 20", 1))
	d.expect(ok, 1, entries("a=x"))
	require.NoError(t, d.reload())
	d.expect(ok, 10, entries("a=x"))
	d.write("domain: d\nlimits: 1")
	assert.ErrorContains(t, d.reload(), `rules.yaml:2: limits: this key is unknown here, known: `)
	d.expect(ok, 9, entries("a=x"))
	for rule, c := range d.Counts() {
		if rule.Path == "d.a" {
			assert.EqualValues(t, 4, c.Passed.Load())
		}
	}
}

// Hits above the limit count as well.
func TestReloadKeepsRefusedHits(t *testing.T) {
	d := open(t, fixed)
	d.expect(ok, 2, hitting(entries("a=x"), 8))
	d.expect(over, 0, hitting(entries("a=x"), 6))
	d.write(strings.Replace(fixed, "requests_per_unit: 10", "requests_per_unit: 20", 1))
	require.NoError(t, d.reload())
	d.expect(ok, 5, entries("a=x"))
}

func TestGRPC(t *testing.T) {
	d := open(t, fixed)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := d.GRPC()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	client := pb.NewRateLimitServiceClient(conn)
	request := &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{entries("a=x")}, HitsAddend: 6}
	for _, want := range []pb.RateLimitResponse_Code{ok, over} {
		response, err := client.ShouldRateLimit(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, want, response.OverallCode)
	}
	_, err = client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))

	services := server.GetServiceInfo()
	assert.Contains(t, services, "envoy.service.ratelimit.v3.RateLimitService")
	assert.Contains(t, services, "grpc.reflection.v1.ServerReflection")
	healthy := healthpb.NewHealthClient(conn)
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		got, err := healthy.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, got.Status, name)
	}
	d.Drain()
	got, err := healthy.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, got.Status)
	server.GracefulStop()
	assert.NoError(t, <-served)
}

func TestHTTP(t *testing.T) {
	d := open(t, fixed)
	server := d.HTTP()
	call := func(path, body, origin string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const request = `{"domain": "d", "hits_addend": 6, "descriptors": [{"entries": [{"key": "a", "value": "x"}]}]}`
	code, text := call("/json", request, "")
	assert.Equal(t, http.StatusOK, code)
	assert.Regexp(t, `"overallCode": ?"OK"`, text)
	assert.Regexp(t, `"limitRemaining": ?4`, text)
	code, text = call("/json", request, "")
	assert.Equal(t, http.StatusTooManyRequests, code)
	assert.Regexp(t, `"overallCode": ?"OVER_LIMIT"`, text)
	for body, want := range map[string]int{
		"": http.StatusBadRequest, "{": http.StatusBadRequest, `{"domain": "d", "x": 1}`: http.StatusBadRequest, "{}": http.StatusBadRequest,
		strings.Repeat(" ", maxMessage+1): http.StatusRequestEntityTooLarge,
	} {
		code, _ := call("/json", body, "")
		assert.Equal(t, want, code)
	}
	for _, value := range []string{strings.Repeat("x", maxMessage/2), "caf\xe9"} {
		code, text = call("/json", strings.Replace(request, `"x"`, `"`+value+`"`, 1), "")
		assert.Equal(t, http.StatusOK, code, "%.200s", text)
	}
	assert.Empty(t, d.reading.taken, "parts of maxAtOnce are lost")
	_, text = call("/rlconfig", "", "")
	assert.Equal(t, "d.a: unit=YEAR requests_per_unit=10, shadow_mode: false, quota_mode: false\nd.none: unit=YEAR requests_per_unit=0, shadow_mode: false, quota_mode: false\n", text)
	for path, want := range map[string]int{"/json": http.StatusForbidden, "/rlconfig": http.StatusForbidden, "/healthcheck": http.StatusOK} {
		code, _ := call(path, request, "http://evil.example")
		assert.Equal(t, want, code, path)
	}
	d.Drain()
	code, _ = call("/healthcheck", "", "")
	assert.Equal(t, http.StatusInternalServerError, code)
}

// sliding is a file of n rules of different families.
func sliding(from, n int) string {
	text := "domain: d\ndescriptors:\n"
	for i := range n {
		text += fmt.Sprintf("  - {key: k%d, rate_limit: {limit: sliding 5/%dh}}\n", i, from+i)
	}
	return text
}

func (d door) engines() (n int) {
	for range d.keep.All() {
		n++
	}
	return n
}

// Nor do refused rules take any.
func TestReplacedRulesLeaveTheirRoom(t *testing.T) {
	d := open(t, sliding(1, 1))
	units := d.engines() - 1
	d.write(sliding(1, 40))
	err := d.reload()
	require.ErrorIs(t, err, families.ErrTooMany)
	line := 3 + 32 - units
	assert.ErrorContains(t, err, fmt.Sprintf(":%d: d.k%d: no room", line, 32-units))
	assert.NotContains(t, err.Error(), fmt.Sprintf(":%d: ", line-1))
	set, other := rules.Read(filepath.Dir(d.file), rules.Options{})
	require.NoError(t, other)
	assert.EqualError(t, Room(families.Config{}, set), err.Error())
	assert.Equal(t, units+1, d.engines())
	for from := range 40 {
		d.write(sliding(from+1, 2))
		require.NoError(t, d.reload())
		assert.Equal(t, units+2, d.engines())
	}
}

func TestRequestsFindNoReleasedEngine(t *testing.T) {
	d := open(t, sliding(1, 1))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				code, _ := d.ask(entries(fmt.Sprintf("k0=%d-%d", caller, i)))
				assert.Equal(t, ok, code)
			}
		})
	}
	for from := range 10 {
		d.write(sliding(from%2+1, 1))
		assert.NoError(t, d.reload())
	}
	close(stop)
	callers.Wait()
}
