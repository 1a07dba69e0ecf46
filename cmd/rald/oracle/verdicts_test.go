package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// apart has names that do not run into each other, so that keys of the reference differ.
func apart(seed uint64) *generator {
	return &generator{
		Rand:   rand.New(rand.NewPCG(seed, 1)),
		keys:   []string{"a", "b", "c*"},
		values: []string{"x", "y", "x*", "*", "z"},
		suffix: fmt.Sprint(seed),
	}
}

const (
	// requestsEach is the number of requests with each configuration.
	requestsEach = 25
	// together is the number of configurations that share engines.
	together = 40
)

// Promise: Envoy gets the verdicts of envoyproxy/ratelimit: code, remaining hits, reset.
func TestVerdictsAreThoseOfTheReference(t *testing.T) {
	t.Setenv("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
	reference := newReference()
	var seen outcomes
	configurations := max(*pairs/requestsEach, 1)
	for begin := 0; begin < configurations; begin += together {
		synctest.Test(t, func(t *testing.T) {
			apart(*seed + uint64(begin)).begin()
			keep := must.Get(families.New(families.Config{}))
			defer func() { require.NoError(t, keep.Close()) }()
			clear(reference.counts)
			for i := begin; i < min(begin+together, configurations); i++ {
				compareVerdicts(t, reference, keep, apart(*seed+uint64(i)), &seen)
			}
		})
	}
	t.Logf("%+v", seen)
	assert.Greater(t, seen.over, *pairs/10)
	assert.Greater(t, seen.ok, *pairs/5)
	assert.Greater(t, seen.statuses, *pairs)
	assert.Greater(t, seen.shadowed, *pairs/50)
	assert.Greater(t, seen.hidden, *pairs/50)
	assert.Greater(t, seen.unlimited, *pairs/50)
}

type outcomes struct{ ok, over, shadowed, statuses, hidden, unlimited int }

func (o *outcomes) see(r *pb.RateLimitResponse) {
	if r.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		o.over++
	} else {
		o.ok++
	}
	for _, s := range r.Statuses {
		if s.Code == pb.RateLimitResponse_OVER_LIMIT && r.OverallCode == pb.RateLimitResponse_OK {
			o.shadowed++
		}
		switch {
		case s.CurrentLimit != nil:
			o.statuses++
			if s.Code == pb.RateLimitResponse_OK && s.LimitRemaining == 0 {
				// Shadow mode hides the refusal, or the hit was the last.
				o.hidden++
			}
		case s.LimitRemaining > 0:
			o.unlimited++
		}
	}
}

func compareVerdicts(t *testing.T, upstream *reference, keep *families.Families, g *generator, seen *outcomes) {
	var files []rules.Source
	var set *rules.Set
	var merge bool
	var want config.RateLimitConfig
	// The loop ends when there is neither a duplicate of two files nor a rule without effect.
	for set == nil {
		g.ways = nil
		files = g.files()
		merge = len(files) == 2
		var err error
		if want, err = referenceReads(files, merge); err == nil {
			set, err = rules.Parse(files, rules.Options{Merge: merge})
			require.True(t, sameVerdict(nil, err), "%v", err)
		}
	}
	modes := envoyserver.Config{Families: keep, Headers: true, Shadow: g.percent(15), Metadata: g.percent(50)}
	for name, on := range map[string]bool{
		"SHADOW_MODE": modes.Shadow, "RESPONSE_DYNAMIC_METADATA": modes.Metadata,
	} {
		t.Setenv(name, strconv.FormatBool(on))
	}
	upstream.use(want)
	door := must.Get(envoyserver.New(modes, set))

	// some has the requests so far, so that descriptors come again.
	var some []*pb.RateLimitRequest
	for range 4 {
		some = append(some, g.request(set))
	}
	for range requestsEach {
		g.pause()
		request := proto.Clone(some[g.IntN(len(some))]).(*pb.RateLimitRequest)
		if g.percent(30) {
			g.addend(request)
		}
		want, wantErr := upstream.ShouldRateLimit(context.Background(), request)
		got, err := door.ShouldRateLimit(context.Background(), request)
		text := func() string {
			return fmt.Sprintf("the reference says %v %v\n\nrald says %v %v\n\nto %v at %v, of seed %s, merge %t, %+v\n%s",
				prototext.Format(want), wantErr, prototext.Format(got), err, request, time.Now(), g.suffix, merge, modes, listing(files))
		}
		require.Equal(t, wantErr == nil, err == nil, "%s", text())
		if err == nil {
			// The field is no more.
			delete(want.DynamicMetadata.GetFields(), "quotaModeEnabled")
			require.True(t, proto.Equal(want, got), "%s", text())
			seen.see(got)
		}
	}
}

// begin lets years pass, until shortly before windows of a unit end. Before there are janitors it
// costs nothing.
func (g *generator) begin() {
	length := int64(rules.Units[g.IntN(len(rules.Units))].Length() / time.Second)
	end := (time.Now().Unix() + g.Int64N(8*365*24*3600)) / length * length
	time.Sleep(time.Duration(max(0, end-time.Now().Unix()-g.Int64N(300))) * time.Second) // wall: its callers run in a bubble
}

// pause lets time pass, and ends between milliseconds, not at the very beginning of a window.
func (g *generator) pause() {
	d := time.Duration(0)
	switch g.IntN(40) {
	case 0, 1, 2, 3, 4:
		d = time.Duration(g.IntN(1500)) * time.Millisecond
	case 5:
		if g.percent(20) {
			d = time.Duration(g.IntN(90)) * time.Second
		}
	}
	d += time.Millisecond/2 - time.Duration(time.Now().Nanosecond())%time.Millisecond
	if d < 0 {
		d += time.Millisecond
	}
	time.Sleep(d)
}

func (g *generator) request(set *rules.Set) *pb.RateLimitRequest {
	values := append([]string{"", "xx", "w"}, g.values...)
	r := &pb.RateLimitRequest{}
	for range 1 + g.IntN(4) {
		domain, d := g.descriptor(values)
		if r.Domain == "" {
			r.Domain = domain
		}
		switch {
		case g.percent(10):
			r.Descriptors = append(r.Descriptors, d)
		case g.percent(15):
			g.override(set, domain, d)
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	switch g.IntN(60) {
	case 0:
		r.Domain = ""
	case 1:
		r.Descriptors = nil
	case 2:
		r.Domain = "unknown"
	}
	g.addend(r)
	return r
}

// override gives the descriptor a limit in the unit of its rule. Otherwise, and for weeks, which
// overrides lack, it adds an entry. The reference may count other units under the same key.
func (g *generator) override(set *rules.Set, domain string, d *common.RateLimitDescriptor) {
	unit := types.RateLimitUnit(1 + g.IntN(6))
	var m rules.Match
	if of := set.Domain(domain); of != nil {
		m = rules.Find(of, d.Entries)
	}
	if m.Rule != nil && m.Shared == nil && !m.Rule.Unlimited && m.Rule.Unit != rules.Week {
		unit = types.RateLimitUnit(types.RateLimitUnit_value[m.Rule.Unit.String()])
	} else {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: "override", Value: unit.String()})
	}
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: g.requests(), Unit: unit}
}

func (g *generator) addend(r *pb.RateLimitRequest) {
	r.HitsAddend = []uint32{0, 0, 0, 1, 2, 5, 1000, 1<<32 - 1}[g.IntN(8)]
	for _, d := range r.Descriptors {
		if d.HitsAddend = nil; g.percent(30) {
			d.HitsAddend = wrapperspb.UInt64([]uint64{0, 0, 1, 3, 12, 1 << 32, 1 << 34, 1 << 40}[g.IntN(8)])
		}
	}
}
