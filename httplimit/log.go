package httplimit

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A flood of requests must not become one of lines.
var linesOfLog = policy.Must(policy.Funnel(10, 10, time.Second))

// lines writes lines about refused requests, not too many.
type lines struct {
	to    *slog.Logger
	epoch time.Time
	word  atomic.Uint64 // of linesOfLog
	left  atomic.Uint64 // lines left out since the last one
}

// may tells whether there may be a line now, and how many were left out before it.
func (l *lines) may() (left uint64, ok bool) {
	for {
		word := l.word.Load()
		next, d := linesOfLog.Take(word, policy.Instant(time.Since(l.epoch))+1, 1, 0)
		if !d.Allowed {
			l.left.Add(1)
			return 0, false
		}
		if l.word.CompareAndSwap(word, next) {
			return l.left.Swap(0), true
		}
	}
}

func (m *Middleware) logRefused(r *http.Request, v *ruling) {
	ctx, client, key := r.Context(), "", ""
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
	if v.Limit != "" && v.Reason != Keyless {
		key = m.gates[v.binding].fingerprint(r)
	}
	m.log.to.LogAttrs(ctx, slog.LevelInfo, "rate limit: "+v.Reason.String(),
		slog.String("limit", v.Limit),
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

// cut bounds what strangers write into the log.
func cut(s string) string { return s[:min(len(s), 256)] }
