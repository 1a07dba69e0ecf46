package inspect_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
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

// Promise: Charts cover the last ten minutes.
func TestPointsOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[string](t, engine.Config{Name: "api"})
		one := single.MustNew(policy.Funnel(10, 1, time.Hour))
		h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: e}, inspect.Limit[struct{}]{Name: "all", Limiter: one})
		assert.Empty(t, overview(t, h, "limits").Limits[0].Points)
		// The calls come in the first two seconds.
		for range 16 {
			e.Choke("a")
		}
		for range 5 {
			one.Choke()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		// The call comes in the second two seconds.
		e.Choke("b")
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

// Promise: A limit's load of the last day is kept, in points of three minutes.
func TestPointsOfTheLastDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine[string](t, engine.Config{Name: "api"})
		h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: e})
		assert.Empty(t, ask[pagejson.History](t, h, "history?limit=api").Points)
		// No call comes with a point.
		time.Sleep(time.Second)
		for range 26 * 60 {
			for range 30 {
				e.Choke("a")
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		day := ask[pagejson.History](t, h, "history?limit=api")
		assert.Equal(t, 180.0, day.Every)
		require.Len(t, day.Points, 24*60/3)
		assert.Equal(t, time.Now().UnixMilli()-1000, day.Points[479].At)
		calls := 0.0
		for i, p := range day.Points {
			calls += 180 * (p.Admitted + p.Refused)
			if i > 0 {
				require.Equal(t, int64(180_000), p.At-day.Points[i-1].At, "in their order")
			}
		}
		assert.InDelta(t, 24*60*30, calls, 1e-3, "no call is lost")
	})
}
