package httplimit

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// logRate keeps a flood of requests from becoming a flood of lines.
var logRate = policy.Must(policy.Funnel(10, 10, time.Second))

// refusalLog writes lines about refused requests at a bounded rate.
type refusalLog struct {
	to    *slog.Logger
	epoch time.Time
	word  atomic.Uint64 // the state of logRate
	left  atomic.Uint64 // lines left out since the last one
	// reported is set for each limit whose misconfiguration was logged. The last is for
	// errors that are not about a limit.
	reported     [maxLimits + 1]atomic.Bool
	shadowFailed [maxLimits]atomic.Bool // the same for what fails of a limit with Shadow
}

// may reports whether a line may be written now, and how many were left out before it.
func (l *refusalLog) may() (left uint64, ok bool) {
	for {
		word := l.word.Load()
		next, d := logRate.Take(word, policy.Instant(time.Since(l.epoch))+1, 1, 0)
		if !d.Allowed {
			l.left.Add(1)
			return 0, false
		}
		if l.word.CompareAndSwap(word, next) {
			return l.left.Swap(0), true
		}
	}
}

func (m *Middleware) logRefused(r *http.Request, v *result) {
	ctx, client, key := r.Context(), "", ""
	if v.Reason == Misconfigured {
		key = m.logMisconfigured(r, v)
	}
	if !m.log.to.Enabled(ctx, slog.LevelInfo) {
		return
	}
	left, ok := m.log.may()
	if !ok {
		return
	}
	if addr := m.addr.Addr(r); addr.IsValid() {
		client = addr.String()
	}
	if key == "" && v.Limit != "" && v.Reason != Keyless {
		key, _ = m.limiters[v.binding].keyOf(r, false)
	}
	m.log.to.LogAttrs(ctx, slog.LevelInfo, "rate limit: "+v.Reason.String(),
		slog.String("limit", v.Limit),
		causeOf(v),
		slog.String("method", cut(r.Method)),
		slog.String("path", cut(r.URL.Path)),
		slog.String("client", client),
		slog.String("key", key),
		slog.String("remote", r.RemoteAddr),
		slog.Int64("cost", v.Cost),
		slog.Duration("retry_after", v.RetryAfter),
		slog.Bool("shadow", v.Shadow),
		slog.Uint64("left_out", left),
	)
}

// logMisconfigured writes one line for each limit that is in error, and one if
// Options.Cost is. It returns the key's fingerprint if it found the key.
func (m *Middleware) logMisconfigured(r *http.Request, v *result) (key string) {
	at := maxLimits
	if v.Limit != "" {
		at = v.binding
	}
	if m.log.reported[at].Swap(true) {
		return ""
	}
	if v.Limit == "" {
		m.log.to.LogAttrs(r.Context(), slog.LevelError, "rate limit: Options.Cost or Limit.Cost returned less than 0",
			slog.Int64("cost", v.Cost))
		return ""
	}
	key, limit := m.limiters[v.binding].keyOf(r, true)
	message := "rate limit: Limit.PolicyFor or engine.PolicyFor chose a policy of another family than Config.Policy; its keys are refused"
	if v.Basis.Cause() != nil {
		message = "rate limit: the limiter takes no policy that Limit.PolicyFor chooses, or not this one; its keys are refused"
	}
	m.log.to.LogAttrs(r.Context(), slog.LevelError, message,
		slog.String("limit", v.Limit),
		causeOf(v),
		slog.String("policy", limit),
		slog.String("key", key))
	return key
}

// causeOf returns why the limiter did not decide by its limit, such as a block or an outage,
// and no attribute if it did.
func causeOf(v *result) slog.Attr {
	if cause := v.Basis.Cause(); cause != nil {
		return slog.String("cause", cut(cause.Error()))
	}
	return slog.Attr{}
}

// cut bounds the length of what clients write into the log.
func cut(s string) string { return s[:min(len(s), 256)] }
