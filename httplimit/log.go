package httplimit

import (
	"log/slog"
	"net/http"

	"github.com/ral-limiter/ral/internal/adapter/admission"
)

func (m *Middleware) logRefused(r *http.Request, v *result) {
	m.control.LogRefused(r.Context(), r, &v.Verdict, v.Binding, m.describe)
}

// describe returns the attributes of a request's line before its key and after it.
func (m *Middleware) describe(r *http.Request) (before, after []slog.Attr) {
	client := ""
	if addr := m.addr.Addr(r); addr.IsValid() {
		client = addr.String()
	}
	return []slog.Attr{
		slog.String("method", admission.Cut(r.Method)),
		slog.String("path", admission.Cut(r.URL.Path)),
		slog.String("client", client),
	}, []slog.Attr{slog.String("remote", r.RemoteAddr)}
}
