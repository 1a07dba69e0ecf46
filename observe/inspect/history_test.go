package inspect_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// ask asks a handler without a network.
func ask[T any](t *testing.T, h *inspect.Handler, path string) (v T) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://server/"+path, nil))
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

func overview(t *testing.T, h *inspect.Handler, path string) pagejson.Overview {
	t.Helper()
	return ask[pagejson.Overview](t, h, path)
}

// Points are calls a second, and cover the last ten minutes.
func TestPointsOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[string](t, engine.Config{Name: "api"})
		one := single.MustNew(policy.Funnel(10, 1, time.Hour))
		h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: e}, inspect.Limit[struct{}]{Name: "all", Limiter: one})
		assert.Empty(t, overview(t, h, "limits").Limits[0].Points)
		for range 16 { // in the first two seconds
			e.Choke("a")
		}
		for range 5 {
			one.Choke()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		e.Choke("b") // in the second two
		time.Sleep(2 * time.Second)
		synctest.Wait()
		o := overview(t, h, "limits")
		assert.Equal(t, uint64(2), o.Tick)
		points := o.Limits[0].Points
		require.Len(t, points, 2)
		assert.Equal(t, []float64{5, 3, 1}, []float64{points[0].Admitted, points[0].Refused, float64(points[0].Keys)})
		assert.Equal(t, []float64{.5, 0, 2}, []float64{points[1].Admitted, points[1].Refused, float64(points[1].Keys)})
		assert.Equal(t, int64(2000), points[1].At-points[0].At)
		assert.InDelta(t, .5, o.Limits[1].Points[1].Used, 1e-9)

		assert.Len(t, overview(t, h, "limits?since=1").Limits[0].Points, 1)
		assert.Empty(t, overview(t, h, "limits?since=2").Limits[0].Points)
		assert.Len(t, overview(t, h, "limits?since=3").Limits[0].Points, 2, "that is of another process")

		time.Sleep(20 * time.Minute)
		synctest.Wait()
		o = overview(t, h, "limits")
		assert.Equal(t, uint64(602), o.Tick)
		points = o.Limits[0].Points
		require.Len(t, points, 300)
		for i := range points[1:] {
			assert.Equal(t, int64(2000), points[i+1].At-points[i].At, "in their order")
		}
		assert.Len(t, overview(t, h, "limits?since=590").Limits[0].Points, 12)
	})
}

// The panic costs points of its own limit, and is logged once. Calls counted meanwhile are in no
// point.
func TestPointsGoOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := single.MustNew(policy.Funnel(10, 1, time.Hour))
		var broken atomic.Bool
		var admitted atomic.Uint64
		log := &logbuffer.Buffer{}
		e := newEngine[string](t, engine.Config{Name: "api"})
		h := newHandler(t, inspect.Config{Logger: log.Logger()}, inspect.Limit[string]{Limiter: e}, inspect.Limit[struct{}]{Name: "all", Limiter: one, Stats: func() any {
			if broken.Load() {
				panic("broken")
			}
			return struct{ Admitted uint64 }{admitted.Load()}
		}})
		admitted.Store(20)
		time.Sleep(3 * time.Second)
		broken.Store(true)
		admitted.Store(10_000)
		e.Choke("a")
		time.Sleep(time.Minute)
		o := overview(t, h, "limits")
		assert.Equal(t, uint64(31), o.Tick)
		assert.Equal(t, .5, o.Limits[0].Points[1].Admitted, "the other limit has its points")
		broken.Store(false)
		time.Sleep(2 * time.Second)
		admitted.Add(8)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		points := overview(t, h, "limits").Limits[1].Points
		var rates []float64
		for _, p := range points {
			if p.Admitted > 0 {
				rates = append(rates, p.Admitted)
			}
		}
		assert.Equal(t, []float64{10, 4}, rates)
		require.Len(t, log.Lines(), 1)
		assert.Contains(t, log.Lines()[0], "broken")
		assert.Contains(t, log.Lines()[0], "limit=all")
	})
}
