package ralotel

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/policy"
)

// Trace tells the span of a request's context that the request was refused or delayed. It
// is for httplimit.Options.OnVerdict:
//
//	httplimit.Options{OnVerdict: ralotel.Trace}
//
// The span gets one event, "ral.refused" or "ral.delayed", and the attributes ral.result,
// which is a value of the label result of ral.http.requests, and ral.limit, the name of the
// limit that decided. The event also has ral.source (what decided, see limits.Source),
// ral.cost (units), ral.shadow if nothing is enforced and, where there are such times, ral.retry_after and
// ral.wait in seconds. No attribute has the key.
//
// A request that is admitted at once leaves no trace, and Trace never starts a span: a
// decision takes less time than that. A request whose span is not recorded costs a look at
// its context. If a function of the program's own is to see verdicts too, it calls Trace.
func Trace(r *http.Request, v httplimit.Verdict) {
	passes := v.Reason == httplimit.Admitted || v.Reason == httplimit.Exempt
	if passes && v.Waited == 0 {
		return
	}
	span := trace.SpanFromContext(r.Context())
	if !span.IsRecording() {
		return
	}
	event := "ral.refused"
	if passes {
		event = "ral.delayed"
	}
	attributes := []attribute.KeyValue{attribute.String("ral.result", strings.ReplaceAll(v.Reason.String(), " ", "_"))}
	if v.Limit != "" {
		attributes = append(attributes, attribute.String("ral.limit", v.Limit))
	}
	span.SetAttributes(attributes...)
	attributes = append(attributes, attribute.Int64("ral.cost", v.Cost))
	if v.Basis != nil {
		attributes = append(attributes, attribute.String("ral.source", v.Basis.Source().String()))
	}
	if v.Shadow {
		attributes = append(attributes, attribute.Bool("ral.shadow", true))
	}
	if v.RetryAfter > 0 && v.RetryAfter != policy.Never {
		attributes = append(attributes, attribute.Float64("ral.retry_after", v.RetryAfter.Seconds()))
	}
	if v.Waited > 0 {
		attributes = append(attributes, attribute.Float64("ral.wait", v.Waited.Seconds()))
	}
	span.AddEvent(event, trace.WithAttributes(attributes...))
}
