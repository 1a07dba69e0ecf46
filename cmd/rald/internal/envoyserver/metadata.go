package envoyserver

import (
	"maps"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata returns the reference's metadata: the request itself, and the metadata of the rules that
// it passed. The first rule wins, but maps are merged.
func metadata(request *pb.RateLimitRequest, asks []ask) *structpb.Struct {
	var descriptors []*structpb.Value
	passed := map[string]any{}
	for i, d := range request.Descriptors {
		if d != nil {
			descriptors = append(descriptors, structpb.NewStructValue(describeRequest(d)))
		}
		if a := &asks[i]; a.isHeld() && a.passed() {
			merge(passed, a.Metadata)
		}
	}
	fields := map[string]*structpb.Value{
		"domain":      structpb.NewStringValue(request.Domain),
		"descriptors": list(descriptors),
	}
	if request.HitsAddend != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(request.HitsAddend))
	}
	if len(passed) > 0 {
		// Values of other types do not occur: see rules.Rule.
		fields["metadata"], _ = structpb.NewValue(passed)
	}
	return &structpb.Struct{Fields: fields}
}

// merge changes no inner map of from.
func merge(to, from map[string]any) {
	for key, value := range from {
		before, known := to[key]
		inner, isMap := value.(map[string]any)
		switch before, wasMap := before.(map[string]any); {
		case isMap && (wasMap || !known):
			both := map[string]any{}
			maps.Copy(both, before)
			merge(both, inner)
			to[key] = both
		case !known:
			to[key] = value
		}
	}
}

func describeRequest(rateLimitDescriptor *common.RateLimitDescriptor) *structpb.Struct {
	var entries []*structpb.Value
	for _, e := range rateLimitDescriptor.Entries {
		entries = append(entries, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": list(entries)}
	if rateLimitDescriptor.Limit != nil {
		fields["limit"] = structpb.NewStringValue(rateLimitDescriptor.Limit.String())
	}
	if rateLimitDescriptor.HitsAddend != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(rateLimitDescriptor.HitsAddend.Value))
	}
	return &structpb.Struct{Fields: fields}
}

func list(values []*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: values})
}
