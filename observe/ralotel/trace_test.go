package ralotel_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/ralotel"
	"github.com/ral-limiter/ral/policy"
)

// requests serves n requests with a span each, and returns the spans. The limit is one an hour.
func requests(t *testing.T, n int, options httplimit.Options) []sdktrace.ReadOnlySpan {
	limiter, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	require.NoError(t, err)
	defer limiter.Close()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	options.OnVerdict, options.Name = ralotel.Trace, "hourly"
	handler := httplimit.Must(httplimit.New(limiter, httplimit.ByHeader("Key"), options)).
		Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range n {
		ctx, span := tracer.Start(context.Background(), "GET /")
		r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
		r.Header.Set("Key", "secret")
		handler.ServeHTTP(httptest.NewRecorder(), r)
		span.End()
	}
	spans := recorder.Ended()
	require.Len(t, spans, n, "no span a decision")
	return spans
}

// Promise: A refused request is one event of its span, without key.
func TestRefusedRequestIsAnEventOfItsSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := requests(t, 2, httplimit.Options{})
		assert.Empty(t, spans[0].Events(), "admitted at once")
		assert.Empty(t, spans[0].Attributes())
		onSpan := []attribute.KeyValue{attribute.String("ral.result", "over_limit"), attribute.String("ral.limit", "hourly")}
		assert.Equal(t, onSpan, spans[1].Attributes())
		events := spans[1].Events()
		require.Len(t, events, 1)
		assert.Equal(t, "ral.refused", events[0].Name)
		assert.Equal(t, append(onSpan,
			attribute.Int64("ral.cost", 1), attribute.String("ral.source", "process"), attribute.Float64("ral.retry_after", 3600)),
			events[0].Attributes)
	})
}

func TestDelaysAndShadowedRefusalsAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := requests(t, 2, httplimit.Options{WaitUpTo: 2 * time.Hour})
		assert.Empty(t, spans[0].Events())
		events := spans[1].Events()
		require.Len(t, events, 1)
		assert.Equal(t, "ral.delayed", events[0].Name)
		assert.Contains(t, events[0].Attributes, attribute.String("ral.result", "admitted"))
		assert.Contains(t, events[0].Attributes, attribute.Float64("ral.wait", 3600))

		shadowed := requests(t, 2, httplimit.Options{Shadow: true})[1].Events()
		require.Len(t, shadowed, 1)
		assert.Contains(t, shadowed[0].Attributes, attribute.Bool("ral.shadow", true))
	})
}

func TestRequestWithoutASpanOrLimitIsNotTraced(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	ralotel.Trace(r, limits.Verdict{Reason: limits.OverLimit, Limit: "hourly"})

	recorder := tracetest.NewSpanRecorder()
	ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(context.Background(), "GET /")
	r = r.WithContext(trace.ContextWithSpan(ctx, span))
	ralotel.Trace(r, limits.Verdict{Reason: limits.Exempt})
	ralotel.Trace(r, limits.Verdict{Reason: limits.NeverAdmitted, RetryAfter: policy.Never})
	span.End()
	events := recorder.Ended()[0].Events()
	require.Len(t, events, 1)
	assert.Equal(t, []attribute.KeyValue{attribute.String("ral.result", "never_admitted"), attribute.Int64("ral.cost", 0)}, events[0].Attributes,
		"no limit, no basis and no time")
}

// Calls without a middleware: an event if refused or delayed, and none if admitted at once.
func TestCallsAreEventsOfTheCallersSpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	basis := limits.NewProvenance(limits.SourceRedis, true, nil)
	refused := policy.Decision{RetryAfter: 2 * time.Second}
	for _, c := range []struct {
		d    policy.Decision
		name string
		want []attribute.KeyValue // after the result and the limit
	}{
		{policy.Decision{Allowed: true}, "", nil},
		{refused, "ral.refused", []attribute.KeyValue{attribute.Float64("ral.retry_after", 2)}},
		{policy.Decision{RetryAfter: policy.Never}, "ral.refused", nil},
		{policy.Decision{Allowed: true, Wait: time.Second}, "ral.delayed", []attribute.KeyValue{attribute.Float64("ral.wait", 1)}},
	} {
		ctx, span := tracer.Start(context.Background(), "work")
		ralotel.TraceDecision(ctx, "api", c.d)
		ralotel.TraceAnswer(ctx, "api", limits.Answer{Decision: c.d, Provenance: basis})
		span.End()
		ended := recorder.Ended()
		got := ended[len(ended)-1]
		if c.name == "" {
			assert.Empty(t, got.Events())
			assert.Empty(t, got.Attributes())
			continue
		}
		result := "refused"
		if c.d.Allowed {
			result = "admitted"
		}
		onSpan := []attribute.KeyValue{attribute.String("ral.result", result), attribute.String("ral.limit", "api")}
		assert.Equal(t, onSpan, got.Attributes())
		require.Len(t, got.Events(), 2, "one for each call")
		assert.Equal(t, []string{c.name, c.name}, []string{got.Events()[0].Name, got.Events()[1].Name})
		assert.Equal(t, append(onSpan[:2:2], c.want...), got.Events()[0].Attributes)
		assert.Equal(t, append(append(onSpan[:2:2], attribute.String("ral.source", "exact")), c.want...), got.Events()[1].Attributes)
	}
	assert.Len(t, recorder.Ended(), 4, "no span a decision")
	ralotel.TraceDecision(context.Background(), "api", refused) // without a span
}
