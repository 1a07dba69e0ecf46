package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// Log writes lines about refused requests at a bounded rate.
type Log struct {
	to *slog.Logger
	// rate limits the lines about refused requests.
	rate *single.Limiter
	// left is the number of lines left out since the last line.
	left atomic.Uint64
	// reported tells for each limit whether its misconfiguration was logged. Its last entry is for Options.Cost.
	reported [MaxLimits + 1]atomic.Bool
	// shadowFailed tells for each limit with Shadow whether a failure was logged.
	shadowFailed [MaxLimits]atomic.Bool
	// panicked reports whether LogPanic has logged a panic.
	panicked atomic.Bool
	// apart reports whether logApart has logged its warning.
	apart atomic.Bool
}

// may reports whether a line may be written now, and how many were left out before it.
func (l *Log) may() (left uint64, ok bool) {
	if !l.rate.Choke() {
		l.left.Add(1)
		return 0, false
	}
	return l.left.Swap(0), true
}

// NewLog returns a log that writes to a logger, or nothing if it is nil.
func NewLog(to *slog.Logger) *Log {
	return &Log{to: to, rate: single.MustNew(policy.Funnel(10, 10, time.Second))}
}

// LogRefused logs a request that verdict refuses, unless the level or the rate of lines forbid it.
// binding is the index of verdict.Limit. asked returns attributes to write before the key and after it.
func (d *Controller[R, S]) LogRefused(ctx context.Context, request R, verdict *limits.Verdict, binding int, asked func(request R) (before, after []slog.Attr)) {
	to := d.log.to
	if to == nil || verdict.Reason.Passes() {
		return
	}
	key := ""
	if verdict.Reason == limits.Misconfigured {
		key = d.logMisconfigured(ctx, request, verdict, binding)
	}
	if !to.Enabled(ctx, slog.LevelInfo) {
		return
	}
	left, ok := d.log.may()
	if !ok {
		return
	}
	if key == "" && verdict.Limit != "" && verdict.Reason != limits.NoKey {
		key, _ = d.limiters[binding].KeyOf(request, false)
	}
	before, after := asked(request)
	attrs := append([]slog.Attr{slog.String("limit", verdict.Limit), causeOf(verdict)}, before...)
	attrs = append(append(attrs, slog.String("key", key)), after...)
	to.LogAttrs(ctx, slog.LevelInfo, "rate limit: "+verdict.Reason.String(), append(attrs,
		slog.Int64("cost", verdict.Cost),
		slog.Duration("retry_after", verdict.RetryAfter),
		slog.Bool("shadow", verdict.Shadow),
		slog.Uint64("left_out", left),
	)...)
}

// logMisconfigured writes a line about a misconfigured limit, or about Options.Cost, once for each. It returns
// the fingerprint of the key if it wrote the key.
func (d *Controller[R, S]) logMisconfigured(ctx context.Context, request R, verdict *limits.Verdict, binding int) (key string) {
	place := MaxLimits
	if verdict.Limit != "" {
		place = binding
	}
	if d.log.reported[place].Swap(true) {
		return ""
	}
	if verdict.Limit == "" {
		d.log.to.LogAttrs(ctx, slog.LevelError, "rate limit: Options.Cost or Limit.Cost returned less than 0",
			slog.Int64("cost", verdict.Cost))
		return ""
	}
	key, limit := d.limiters[binding].KeyOf(request, true)
	message := "rate limit: Limit.PolicyFor or engine.PolicyFor chose a policy of another family than Config.Policy; its keys are refused"
	if verdict.Provenance.Err() != nil {
		message = "rate limit: the limiter takes no policy that Limit.PolicyFor chooses, or not this one; its keys are refused"
	}
	d.log.to.LogAttrs(ctx, slog.LevelError, message,
		slog.String("limit", verdict.Limit),
		causeOf(verdict),
		slog.String("policy", limit),
		slog.String("key", key))
	return key
}

// logApart warns once if enforced limits over a fleet cannot be asked in one exchange, because they have different
// clients of Redis. logApart writes to the default logger if there is no logger.
func (d *Controller[R, S]) logApart() {
	// shares is implemented by limiters of a fleet.
	type shares interface{ SharesClient(other any) bool }
	var first shares
	var name string
	for i, l := range d.limiters {
		if l == nil || d.Tried(i) {
			continue
		}
		sharer, remote := l.limiter().(shares)
		switch {
		case !remote:
		case first == nil:
			first, name = sharer, d.parts[i].Name
		case !sharer.SharesClient(first) && !d.log.apart.Swap(true):
			cmp.Or(d.log.to, slog.Default()).Warn("rate limit: two limits over a fleet have different clients, so a request that one refuses takes from the other "+
				"until its units are given back, and others may be refused meanwhile; give them equal Config.Redis or one Config.Client, and the same Config.Epoch",
				slog.String("limit", name), slog.String("other", d.parts[i].Name))
		}
	}
}

// maxStack is the most bytes of a stack in a line.
const maxStack = 4 << 10

// LogPanic logs the first panic of a function that the program passed in. The function that recovers must
// call LogPanic, so that the stack shows the origin. LogPanic recovers a panic of the logger.
func (l *Log) LogPanic(ctx context.Context, cause any, attrs ...slog.Attr) {
	if l.to == nil || l.panicked.Swap(true) {
		return
	}
	defer func() { _ = recover() }()
	stack := debug.Stack()
	l.to.LogAttrs(ctx, slog.LevelError, "rate limit: a function of the options or of a limit panicked; its calls are refused",
		append(attrs, slog.String("cause", Cut(fmt.Sprint(cause))), slog.String("stack", string(stack[:min(len(stack), maxStack)])))...)
}

// causeOf returns an attribute with the reason that the limiter did not decide by its limit, such as a block
// or an outage. It returns an empty attribute if there is none.
func causeOf(verdict *limits.Verdict) slog.Attr {
	if cause := verdict.Provenance.Err(); cause != nil {
		return slog.String("cause", Cut(cause.Error()))
	}
	return slog.Attr{}
}

// Cut bounds the length of clients' text in the log.
func Cut(text string) string { return text[:min(len(text), 256)] }
