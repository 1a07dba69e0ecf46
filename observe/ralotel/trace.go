package ralotel

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Trace adds an event to the span of a refused or delayed request, for httplimit.Options.OnVerdict:
//
//	httplimit.Options{OnVerdict: ralotel.Trace}
//
// The event is "ral.refused" or "ral.delayed". Event and span get the attributes ral.result, a
// value of the label result of ral.http.requests, and ral.limit, the name of the deciding limit.
// The event also has ral.source (see limits.Source), ral.cost (units), ral.shadow if nothing is
// enforced and, if they apply, ral.retry_after and ral.wait in seconds. No attribute has the key.
//
// A request admitted at once leaves no trace, and Trace never starts a span. A request with an
// unrecorded span costs a look at its context. Call Trace from a function of your own to see
// verdicts too.
func Trace(request *http.Request, verdict limits.Verdict) {
	passes := verdict.Reason == limits.Admitted || verdict.Reason == limits.Exempt
	if passes && verdict.Waited == 0 {
		return
	}
	span := trace.SpanFromContext(request.Context())
	if !span.IsRecording() {
		return
	}
	more := []attribute.KeyValue{attribute.Int64("ral.cost", verdict.Cost)}
	if verdict.Provenance.Source() != limits.SourceNone {
		more = append(more, attribute.String("ral.source", verdict.Provenance.Source().String()))
	}
	if verdict.Shadow {
		more = append(more, attribute.Bool("ral.shadow", true))
	}
	tell(span, passes, strings.ReplaceAll(verdict.Reason.String(), " ", "_"), verdict.Limit, append(more, times(verdict.RetryAfter, verdict.Waited)...))
}

// TraceAnswer is [Trace] for a call of a limits.Limiter without a middleware: it tells the span of
// ctx if the call was refused or had to wait. limit is the limiter's name. ral.result is "admitted"
// or "refused", as for ral.calls.
//
//	a, err := limiter.Admit(ctx, key, 1)
//	if err != nil {
//		return err // there is no decision
//	}
//	ralotel.TraceAnswer(ctx, "api", a)
func TraceAnswer(ctx context.Context, limit string, answer limits.Answer) {
	if span, tells := toTell(ctx, &answer.Decision); tells {
		tell(span, answer.Allowed, result(answer.Allowed), limit,
			append([]attribute.KeyValue{attribute.String("ral.source", answer.Source().String())}, times(answer.RetryAfter, answer.Wait)...))
	}
}

// TraceDecision is [TraceAnswer] for a policy.Decision, as returned by Engine.Take. ral.wait is the
// time after which the units may be used.
func TraceDecision(ctx context.Context, limit string, decision policy.Decision) {
	if span, tells := toTell(ctx, &decision); tells {
		tell(span, decision.Allowed, result(decision.Allowed), limit, times(decision.RetryAfter, decision.Wait))
	}
}

func toTell(ctx context.Context, decision *policy.Decision) (span trace.Span, tells bool) {
	if decision.Allowed && decision.Wait == 0 {
		return nil, false
	}
	span = trace.SpanFromContext(ctx)
	return span, span.IsRecording()
}

func result(allowed bool) string {
	if allowed {
		return "admitted"
	}
	return "refused"
}

func times(retry, wait time.Duration) (all []attribute.KeyValue) {
	if retry > 0 && retry != policy.Never {
		all = append(all, attribute.Float64("ral.retry_after", retry.Seconds()))
	}
	if wait > 0 {
		all = append(all, attribute.Float64("ral.wait", wait.Seconds()))
	}
	return all
}

// tell adds the event to the span. more is only on the event.
func tell(span trace.Span, passes bool, result, limit string, more []attribute.KeyValue) {
	event := "ral.refused"
	if passes {
		event = "ral.delayed"
	}
	attributes := []attribute.KeyValue{attribute.String("ral.result", result)}
	if limit != "" {
		attributes = append(attributes, attribute.String("ral.limit", limit))
	}
	span.SetAttributes(attributes...)
	span.AddEvent(event, trace.WithAttributes(append(attributes, more...)...))
}
