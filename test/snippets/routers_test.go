package snippets

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// routers serve "done" behind a limit, by the recipes of docs/httplimit.md.
var routers = map[string]func(limit *httplimit.Middleware) http.Handler{
	"chi": func(limit *httplimit.Middleware) http.Handler {
		r := chi.NewRouter()
		r.Use(limit.Handler)
		r.Get("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
		return r
	},
	"echo": func(limit *httplimit.Middleware) http.Handler {
		e := echo.New()
		e.Use(echo.WrapMiddleware(limit.Handler))
		e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "done") })
		return e
	},
	"fiber": func(limit *httplimit.Middleware) http.Handler {
		app := fiber.New()
		app.Use(adaptor.HTTPMiddleware(limit.Handler))
		app.Get("/", func(c *fiber.Ctx) error { return c.SendString("done") })
		return adaptor.FiberApp(app)
	},
	"gin": func(limit *httplimit.Middleware) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		g := gin.New()
		g.Use(func(c *gin.Context) {
			passed := false
			limit.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed, c.Request = true, r
				c.Next()
			})).ServeHTTP(c.Writer, c.Request)
			if !passed {
				c.Abort()
			}
		})
		g.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "done") })
		return g
	},
}

// The recipes limit requests and tell clients.
func TestRouters(t *testing.T) {
	for name, router := range routers {
		limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.FixedWindow(1, time.Hour))})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
		h := router(httplimit.Must(httplimit.New(limiter, httplimit.ByAddr, httplimit.Options{})))
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			assert.Equal(t, want, w.Code, name)
			assert.Equal(t, want == http.StatusOK, w.Body.String() == "done", name)
			assert.Equal(t, want != http.StatusOK, w.Header().Get("Retry-After") != "", name)
			assert.NotEmpty(t, w.Header().Get("RateLimit"), name)
		}
	}
}
