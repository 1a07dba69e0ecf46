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
	var descriptors []any
	passed := map[string]any{}
	for i, descriptor := range request.Descriptors {
		if descriptor != nil {
			descriptors = append(descriptors, describeRequest(descriptor))
		}
		if ask := &asks[i]; ask.isHeld() && ask.passed() {
			merge(passed, ask.Metadata)
		}
	}
	fields := map[string]any{"domain": request.Domain, "descriptors": descriptors}
	if request.HitsAddend != 0 {
		fields["hitsAddend"] = request.HitsAddend
	}
	if len(passed) > 0 {
		fields["metadata"] = passed
	}
	// Values of other types and texts that are no UTF-8 do not occur: see rules.Rule and unmarshal.
	all, _ := structpb.NewStruct(fields)
	return all
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

func describeRequest(rateLimitDescriptor *common.RateLimitDescriptor) map[string]any {
	var entries []any
	for _, entry := range rateLimitDescriptor.Entries {
		entries = append(entries, entry.GetKey()+"="+entry.GetValue())
	}
	fields := map[string]any{"entries": entries}
	if rateLimitDescriptor.Limit != nil {
		fields["limit"] = rateLimitDescriptor.Limit.String()
	}
	if rateLimitDescriptor.HitsAddend != nil {
		fields["hitsAddend"] = rateLimitDescriptor.HitsAddend.Value
	}
	return fields
}
