package snippets

import (
	"bytes"
	"io"
	"log/slog"
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

// routers serve "done" behind a limit, by the recipes of docs/httplimit.md. A log-in always fails, by the
// router's own way to return an error.
var routers = map[string]func(limit *httplimit.Middleware) http.Handler{
	"chi": func(limit *httplimit.Middleware) http.Handler {
		r := chi.NewRouter()
		r.Use(limit.Handler)
		r.Get("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
		r.Get("/login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		return r
	},
	"echo": func(limit *httplimit.Middleware) http.Handler {
		e := echo.New()
		e.Use(echo.WrapMiddleware(limit.Handler), func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				if err := next(c); err != nil {
					c.Error(err) // writes the answer before Charge looks at it
				}
				return nil
			}
		})
		e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "done") })
		e.GET("/login", func(echo.Context) error { return echo.ErrUnauthorized })
		return e
	},
	"fiber": func(limit *httplimit.Middleware) http.Handler {
		app := fiber.New()
		app.Use(func(c *fiber.Ctx) error {
			return adaptor.HTTPHandler(limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := c.Next(); err != nil {
					_ = app.ErrorHandler(c, err) // writes the answer before Charge looks at it
				}
				w.Header().Set("Content-Type", string(c.Response().Header.ContentType()))
				w.WriteHeader(c.Response().StatusCode())
			})))(c)
		})
		app.Get("/", func(c *fiber.Ctx) error { return c.SendString("done") })
		app.Get("/login", func(*fiber.Ctx) error { return fiber.ErrUnauthorized })
		return adaptor.FiberApp(app)
	},
	"gin": func(limit *httplimit.Middleware) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		g := gin.New()
		g.Use(func(c *gin.Context) {
			passed := false
			limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				passed, c.Request = true, r
				c.Next()
				w.WriteHeader(c.Writer.Status()) // shows Charge the status
			})).ServeHTTP(c.Writer, c.Request)
			if !passed {
				c.Abort()
			}
		})
		g.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "done") })
		g.GET("/login", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
		return g
	},
}

// The recipes limit requests and tell clients.
func TestRouterRecipesLimitRequests(t *testing.T) {
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

// Promise: Behind each router's recipe, Charge sees the status of a request that failed by the router's own
// kind of error.
func TestRoutersShowChargeTheStatus(t *testing.T) {
	for name, router := range routers {
		limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.FixedWindow(2, time.Hour))})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
		var logged bytes.Buffer
		failures := httplimit.Options{
			Charge: func(_ *http.Request, served httplimit.Served) int64 {
				if served.Status == http.StatusUnauthorized {
					return 1
				}
				return 0
			},
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		}
		h := router(httplimit.Must(httplimit.New(limiter, httplimit.ByAddr, failures)))
		for i, want := range []struct {
			path   string
			status int
		}{
			{"/", http.StatusOK}, {"/login", http.StatusUnauthorized}, {"/", http.StatusOK},
			{"/login", http.StatusUnauthorized}, {"/", http.StatusTooManyRequests}, {"/login", http.StatusTooManyRequests},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, want.path, nil))
			assert.Equal(t, want.status, w.Code, "%s, request %d", name, i)
			if want.status == http.StatusOK {
				assert.Equal(t, "done", w.Body.String(), name)
				assert.Contains(t, w.Header().Get("Content-Type"), "text/plain", name)
			}
		}
		assert.NotContains(t, logged.String(), "Charge", name)
	}
}
