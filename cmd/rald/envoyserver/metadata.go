package envoyserver

import (
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata returns the reference's metadata: the request itself, the indexes of the descriptors
// over a limit in quota mode, and whether a rule has that mode.
func metadata(request *pb.RateLimitRequest, asks []ask) *structpb.Struct {
	var descriptors, violations []*structpb.Value
	enabled := false
	for i, d := range request.Descriptors {
		if d != nil {
			descriptors = append(descriptors, structpb.NewStructValue(describeRequest(d)))
		}
		if asks[i].over {
			violations = append(violations, structpb.NewNumberValue(float64(i)))
		}
		enabled = enabled || asks[i].isHeld() && asks[i].Quota
	}
	fields := map[string]*structpb.Value{
		"domain":           structpb.NewStringValue(request.Domain),
		"descriptors":      list(descriptors),
		"quotaModeEnabled": structpb.NewBoolValue(enabled),
	}
	if request.HitsAddend != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(request.HitsAddend))
	}
	if violations != nil {
		fields["quotaModeViolations"] = list(violations)
	}
	return &structpb.Struct{Fields: fields}
}

func describeRequest(d *common.RateLimitDescriptor) *structpb.Struct {
	var entries []*structpb.Value
	for _, e := range d.Entries {
		entries = append(entries, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": list(entries)}
	if d.Limit != nil {
		fields["limit"] = structpb.NewStringValue(d.Limit.String())
	}
	if d.HitsAddend != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(d.HitsAddend.Value))
	}
	return &structpb.Struct{Fields: fields}
}

func list(values []*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: values})
}
