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

func (l *lines) refused(r *http.Request, v *ruling) {
	ctx := r.Context()
	if !l.to.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for {
		word := l.word.Load()
		next, d := linesOfLog.Take(word, policy.Instant(time.Since(l.epoch))+1, 1, 0)
		if !d.Allowed {
			l.left.Add(1)
			return
		}
		if l.word.CompareAndSwap(word, next) {
			break
		}
	}
	l.to.LogAttrs(ctx, slog.LevelInfo, "rate limit: "+v.Reason.String(),
		slog.String("limit", v.Limit),
		slog.String("method", cut(r.Method)),
		slog.String("path", cut(r.URL.Path)),
		slog.String("remote", r.RemoteAddr),
		slog.Int64("cost", v.Cost),
		slog.Duration("retry_after", v.RetryAfter),
		slog.Bool("shadow", v.Shadow),
		slog.Uint64("left_out", l.left.Swap(0)),
	)
}

// cut bounds what strangers write into the log.
func cut(s string) string { return s[:min(len(s), 256)] }
