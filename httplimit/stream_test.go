package httplimit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
)

func all(*http.Request) string { return "all" }

func eventsOf(_ *http.Request, soFar Served) int64 { return soFar.Events }

// streamLimits returns limits of 5 events an hour, in each way that a limit decides.
func streamLimits(t *testing.T, change func(l *Limit[string])) map[string]func() (*Middleware, func() int64) {
	made := map[string]func() (*Middleware, func() int64){}
	for _, way := range []string{"alone", "two engines", "mixed"} {
		made[way] = func() (*Middleware, func() int64) {
			e := admissiontest.Hourly[string](t, 5)
			l := Limit[string]{Name: "tokens", Limiter: e, Key: all, Stream: eventsOf}
			given := []AnyLimit{}
			if way == "mixed" {
				l.Limiter = admissiontest.Remote[string](e)
			}
			if way != "alone" {
				given = append(given, Limit[string]{Name: "requests", Limiter: admissiontest.Hourly[string](t, 100), Key: all})
			}
			if change != nil {
				change(&l)
			}
			return Must(NewAll(Options{}, append(given, l)...)), func() int64 { return e.Peek("all", 0).Remaining }
		}
	}
	return made
}

// Promise: A stream is charged while it is written, and ends when nothing remains, with the handler's last event.
func TestStreamEndsWhenNothingRemains(t *testing.T) {
	for way, made := range streamLimits(t, nil) {
		for _, http2 := range []bool{false, true} {
			m, left := made()
			ended := make(chan error, 1)
			var before, charged []int64
			s := serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				LastEvent(r, []byte("event: error\ndata: the first\n\n"))
				LastEvent(r, []byte("event: error\ndata: used up\n\n"))
				n := 1000
				if r.URL.Path == "/short" {
					n = 3
				}
				before = nil
				for i := range n {
					before = append(before, left())
					if _, err := fmt.Fprintf(w, "data: %d\n\n", i); err != nil {
						assert.ErrorIs(t, err, ErrUsedUp)
						<-r.Context().Done()
						_, again := io.WriteString(w, "data: more\n\n")
						assert.ErrorIs(t, again, ErrUsedUp)
						ended <- context.Cause(r.Context())
						return
					}
					assert.NoError(t, http.NewResponseController(w).Flush())
				}
				charged = before
			})), http2)
			read := func(path string) string {
				resp := must.Get(s.Client().Get(s.URL + path))
				defer resp.Body.Close()
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				return string(must.Get(io.ReadAll(resp.Body)))
			}
			assert.Equal(t, "data: 0\n\ndata: 1\n\ndata: 2\n\n", read("/short"), way)
			assert.Equal(t, []int64{4, 4, 3}, charged, "%s: as it is written", way)
			must.Await(t, func() bool { return left() == 2 }, "three are charged")
			assert.Equal(t, "data: 0\n\ndata: 1\n\nevent: error\ndata: used up\n\n", read("/long"), way)
			assert.ErrorIs(t, <-ended, ErrUsedUp, way)
			must.Await(t, func() bool { return left() == 0 }, "all are charged")
			resp := must.Get(s.Client().Get(s.URL))
			resp.Body.Close()
			assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, way)
		}
	}
}

// Promise: A stream that used less than its cost returns the rest, and `Charge` corrects it in the end.
func TestStreamGivesBackUnusedUnits(t *testing.T) {
	two := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: 0\n\ndata: 1\n\n") })
	cost := func(n int64) func(*http.Request) int64 { return func(*http.Request) int64 { return n } }
	for _, c := range []struct{ cost, charge, left int64 }{
		{0, -1, 3}, {1, -1, 3}, {4, -1, 3}, {5, -1, 3}, {4, 1, 4}, {0, 4, 1}, {1, 0, 4}, {1, 7, 0},
	} {
		for way, made := range streamLimits(t, func(l *Limit[string]) {
			l.Cost = cost(c.cost)
			if c.charge >= 0 {
				l.Charge = func(*http.Request, Served) int64 { return c.charge }
			}
		}) {
			m, left := made()
			assert.Equal(t, http.StatusOK, ask(m.Handler(two), from(alice)).Code)
			assert.Equal(t, c.left, left(), "%s: %+v", way, c)
		}
	}
}

// Promise: A response that has not begun when nothing remains is a 429.
func TestStreamWithoutRoomForItsBeginning(t *testing.T) {
	for way, made := range streamLimits(t, nil) {
		m, left := made()
		w := ask(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "60")
			n, err := w.Write([]byte(strings.Repeat("data: 0\n\n", 6)))
			assert.ErrorIs(t, err, ErrUsedUp)
			assert.Zero(t, n)
		})), from(alice))
		assert.Equal(t, http.StatusTooManyRequests, w.Code, way)
		assert.Empty(t, w.Body.String())
		assert.Empty(t, w.Header().Get("Content-Length"))
		assert.EqualValues(t, 5, left(), "%s: nothing was used", way)

		require.Equal(t, http.StatusOK, ask(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("data: 0\n\ndata: 1\n\ndata: 2\n\n"))
		})), from(alice)).Code)
		assert.EqualValues(t, 2, left(), "%s: copied", way)
		w = ask(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("data: 0\n\n", 4))
		})), from(alice))
		assert.Regexp(t, `^3[56]\d\d$`, w.Header().Get("Retry-After"), "the rest of the hour")
	}
}

// Promise: With `Shadow` a stream is charged and does not end, whatever its functions do.
func TestShadowedStreamIsChargedAndGoesOn(t *testing.T) {
	ten := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			_, err := io.WriteString(w, "data: 0\n\n")
			assert.NoError(t, err)
		}
		assert.NoError(t, r.Context().Err())
	})
	for way, made := range streamLimits(t, func(l *Limit[string]) { l.Shadow = true }) {
		m, left := made()
		assert.Len(t, ask(m.Handler(ten), from(alice)).Body.String(), 90, way)
		assert.EqualValues(t, 0, left(), way)
	}
	for way, made := range streamLimits(t, func(l *Limit[string]) {
		l.Shadow, l.Stream = true, func(*http.Request, Served) int64 { panic("as asked") }
	}) {
		m, left := made()
		// A limit that is tried beside no other is not isolated.
		if way == "alone" {
			assert.PanicsWithValue(t, "as asked", func() { ask(m.Handler(ten), from(alice)) })
			continue
		}
		assert.Len(t, ask(m.Handler(ten), from(alice)).Body.String(), 90, way)
		assert.EqualValues(t, 4, left(), way)
		assert.Positive(t, m.Stats().ShadowFailed["tokens"], way)
	}
}

// A step of several limits takes from all or none.
func TestStreamUnderSeveralLimits(t *testing.T) {
	events, bytes := admissiontest.Hourly[string](t, 100), admissiontest.Hourly[string](t, 30)
	m := Must(NewAll(Options{},
		Limit[string]{Name: "events", Limiter: events, Key: all, Stream: eventsOf},
		Limit[string]{Name: "bytes", Limiter: bytes, Key: all, Stream: func(_ *http.Request, soFar Served) int64 { return soFar.Bytes }},
		Limit[string]{Name: "users", Limiter: admissiontest.Hourly[string](t, 1), Key: func(*http.Request) string { return "" }, WhenNoKey: limits.Skip, Stream: eventsOf},
	))
	w := ask(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, err := io.WriteString(w, "data: 0\n\n")
			assert.NoError(t, err)
		}
		_, err := io.WriteString(w, "data: 0\n\n")
		assert.ErrorIs(t, err, ErrUsedUp)
	})), from(alice))
	assert.Len(t, w.Body.String(), 27)
	assert.EqualValues(t, 97, events.Peek("all", 0).Remaining)
	assert.EqualValues(t, 3, bytes.Peek("all", 0).Remaining)

	a := oneAtOnce(t, Options{})
	_, err := NewAll(Options{}, Limit[string]{Limiter: a.Engine, Key: all, Stream: eventsOf})
	refusedBy(t, err, "httplimit.NewAll", "limits[0].Stream")
}

// Each middleware around a handler ends its response with the last event.
func TestNestedMiddlewareEndsWithLastEvent(t *testing.T) {
	for name, n := range map[string][2]int64{"outer": {2, 9}, "inner": {9, 2}} {
		outer := Must(NewAll(Options{}, Limit[string]{Limiter: admissiontest.Hourly[string](t, n[0]), Key: all, Stream: eventsOf}))
		inner := Must(NewAll(Options{}, Limit[string]{Limiter: admissiontest.Hourly[string](t, n[1]), Key: all, Stream: eventsOf}))
		w := httptest.NewRecorder()
		outer.Handler(inner.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			LastEvent(r, []byte("data: end\n\n"))
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: 0\n\n")
			}
		}))).ServeHTTP(w, from(alice))
		assert.Equal(t, "data: 0\n\ndata: 0\n\ndata: end\n\n", w.Body.String(), name)
	}
	r := from(alice)
	// The call does nothing without a limit.
	LastEvent(r, nil)
}

func TestEventsAreCountedHoweverCut(t *testing.T) {
	for text, want := range map[string]int64{
		"":                                   0,
		"data: a":                            0,
		"data: a\n":                          0,
		"data: a\n\n":                        1,
		"data: a\r\n\r\n":                    1,
		"data: a\ndata: b\n\n\n\n":           1,
		": comment\n\n":                      0,
		": comment\ndata: a\n\n":             1,
		"id: 1\n: comment\n\nevent: b\n\n\n": 2,
		"\n\n\n":                             0,
	} {
		for cut := range len(text) + 1 {
			var e eventCounter
			e.count([]byte(text[:cut]))
			e.count([]byte(text[cut:]))
			assert.Equal(t, want, e.n, "%q cut at %d", text, cut)
		}
	}
}
