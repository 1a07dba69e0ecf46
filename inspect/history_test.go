package inspect_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/inspect"
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

func overview(t *testing.T, h *inspect.Handler, path string) inspect.Overview {
	t.Helper()
	return ask[inspect.Overview](t, h, path)
}

// A list goes through the keys once, and requests that come soon after share it.
func TestListLooksAtEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20000
		var looks atomic.Int64
		e := newEngine(t, engine.Config{Name: "api"}, engine.PolicyFor(func(int) policy.Policy {
			looks.Add(1)
			return nil
		}))
		for i := range keys {
			e.Take(i, 1+int64(i%9))
		}
		h := newHandler(t, inspect.Config{}, inspect.Limit[int]{Limiter: e})
		looks.Store(0)
		const path = "keys?by=owed&limit=api&n=200"
		list := ask[inspect.List](t, h, path)
		assert.Len(t, list.Rows, 200)
		assert.Equal(t, int64(keys), looks.Load(), "each key once")
		var together sync.WaitGroup
		for range 20 {
			together.Go(func() { assert.Equal(t, list, ask[inspect.List](t, h, path)) })
		}
		together.Wait()
		assert.Equal(t, int64(keys), looks.Load(), "the other lists are the first one")
		ask[inspect.List](t, h, path+"&after="+list.Next)
		assert.Equal(t, int64(2*keys), looks.Load(), "so is each page")

		looks.Store(0)
		overview(t, h, "limits")
		ask[inspect.List](t, h, "keys?by=refused&limit=api&n=200")
		assert.Zero(t, looks.Load(), "other requests go through no keys")

		time.Sleep(time.Second)
		ask[inspect.List](t, h, path)
		assert.Equal(t, int64(keys), looks.Load(), "after a while there is a new one")
	})
}

// Points are the calls a second between two of them, and the last ten minutes of them.
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

// A function of the program that panics costs points, and neither the process nor later ones.
func TestPointsGoOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := single.MustNew(policy.Funnel(10, 1, time.Hour))
		var broken atomic.Bool
		log := &records{}
		h := newHandler(t, inspect.Config{Logger: log.logger()}, inspect.Limit[struct{}]{Name: "all", Limiter: one, Stats: func() any {
			if broken.Load() {
				panic("broken")
			}
			return nil
		}})
		broken.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		broken.Store(false)
		assert.Zero(t, overview(t, h, "limits").Tick)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.NotZero(t, overview(t, h, "limits").Tick)
		assert.Contains(t, log.lines()[0], "broken")
	})
}
