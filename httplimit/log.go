package httplimit

import (
	"log/slog"
	"net/http"

	"github.com/ral-limiter/ral/internal/adapter/admission"
)

func (m *Middleware) logRefused(request *http.Request, result *result) {
	m.control.LogRefused(request.Context(), request, &result.Verdict, result.Binding, m.describe)
}

// logUnseen logs the first request whose handler returned before an answer was written.
func (m *Middleware) logUnseen(request *http.Request) {
	if m.options.Logger == nil || m.unseen.Swap(true) {
		return
	}
	m.options.Logger.LogAttrs(request.Context(), slog.LevelWarn,
		"rate limit: no answer was written when the handler returned, so Charge takes the status for 200: a router that writes errors later needs its recipe in docs/httplimit.md",
		slog.String("method", admission.Cut(request.Method)), slog.String("path", admission.Cut(request.URL.Path)))
}

// describe returns the attributes of a request's line before its key and after it.
func (m *Middleware) describe(request *http.Request) (before, after []slog.Attr) {
	client := ""
	if addr := m.addr.Addr(request); addr.IsValid() {
		client = addr.String()
	}
	return []slog.Attr{
		slog.String("method", admission.Cut(request.Method)),
		slog.String("path", admission.Cut(request.URL.Path)),
		slog.String("client", client),
	}, []slog.Attr{slog.String("remote", request.RemoteAddr)}
}
