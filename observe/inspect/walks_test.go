package inspect_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
)

const owedOfAPI = "keys?by=owed&limit=api&n=200"

// walked is a handler with an engine of keys that owe. looks counts the keys that walks looked at.
// during is called for the first key of each walk.
func walked(t *testing.T, keys int, during func()) (h *inspect.Handler, looks *atomic.Int64) {
	t.Helper()
	looks = &atomic.Int64{}
	var ready atomic.Bool
	e := newEngine(t, engine.Config{Name: "api"}, engine.PolicyFor(func(int) policy.Policy {
		if ready.Load() && !inCensus() && looks.Add(1)%int64(keys) == 1%int64(keys) && during != nil {
			during()
		}
		return nil
	}))
	for i := range keys {
		e.Take(i, 1+int64(i%9))
	}
	ready.Store(true)
	return newHandler(t, inspect.Config{ShowKeys: true}, inspect.Limit[int]{Limiter: e}), looks
}

// inCensus reports whether the engine counts its keys by use.
func inCensus() bool {
	var calls [16]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls[:])])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "census") {
			return true
		}
		if !more {
			return false
		}
	}
}

// Later pages, concurrent and soon following requests share a walk. A page without keys ends a list
// after a full last walk.
func TestListLooksAtEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 3000
		h, looks := walked(t, keys, nil)
		walks := func() int64 { return looks.Load() / keys }
		list := ask[pagejson.List](t, h, owedOfAPI)
		assert.Len(t, list.Rows, 200)
		assert.Equal(t, uint64(keys), list.Total)
		assert.Equal(t, int64(keys), looks.Load(), "each key once")
		var together sync.WaitGroup
		for range 20 {
			together.Go(func() { assert.Equal(t, list, ask[pagejson.List](t, h, owedOfAPI)) })
		}
		together.Wait()
		assert.Equal(t, int64(1), walks(), "the other lists are the first one")

		seen := map[string]bool{}
		for pages := 1; ; pages++ {
			for _, row := range list.Rows {
				assert.False(t, seen[row.Key], "twice: %s", row.Key)
				seen[row.Key] = true
			}
			if list.Next == "" {
				assert.Empty(t, list.Rows)
				assert.Equal(t, uint64(keys), list.Total)
				break
			}
			path := owedOfAPI + "&after=" + list.Next
			list = ask[pagejson.List](t, h, path)
			for list.Pending { // a rest follows a walk
				time.Sleep(100 * time.Millisecond)
				list = ask[pagejson.List](t, h, path)
			}
			require.Less(t, pages, 100)
		}
		assert.Len(t, seen, keys, "none is missing")
		assert.Equal(t, int64(4), walks(), "one for each thousand keys")

		looks.Store(0)
		overview(t, h, "limits")
		ask[pagejson.List](t, h, "keys?limit=api&by=refused&n=200")
		assert.Zero(t, looks.Load(), "other requests go through no keys")

		time.Sleep(time.Second)
		ask[pagejson.List](t, h, owedOfAPI)
		assert.Equal(t, int64(1), walks(), "after a while there is a new one")
	})
}

// For any requests and pages, and no two walks run at once.
//
// Promise: Walks use at most a tenth of a processor.
func TestWalksTakeAPartOfAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 2 * time.Second
		var running, walks atomic.Int32
		h, _ := walked(t, 1500, func() {
			assert.Equal(t, int32(1), running.Add(1))
			time.Sleep(took)
			running.Add(-1)
			walks.Add(1)
		})
		began := time.Now()
		first := ask[pagejson.List](t, h, owedOfAPI)
		for first.Pending {
			first = ask[pagejson.List](t, h, owedOfAPI)
		}
		var together sync.WaitGroup
		for i := range 5 {
			together.Go(func() {
				for time.Since(began) < time.Minute {
					// Any cursor of the list's form is accepted.
					path := fmt.Sprintf("%s&after=%x.3fe0000000000000.%x.%x", owedOfAPI, int64(time.Since(began))+1, i+1, i)
					if i == 0 {
						path = owedOfAPI
					}
					ask[pagejson.List](t, h, path)
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		together.Wait()
		assert.LessOrEqual(t, time.Duration(walks.Load())*took, time.Since(began)/10)
		assert.GreaterOrEqual(t, walks.Load(), int32(3), "and go on")
	})
}

// It gets the previous list with its age, or none.
//
// Promise: No request waits for a long walk.
func TestRequestsDoNotWaitForALongWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 20 * time.Second
		h, looks := walked(t, 1500, func() { time.Sleep(took) })
		began := time.Now()
		list := ask[pagejson.List](t, h, owedOfAPI)
		assert.True(t, list.Pending)
		assert.Equal(t, []pagejson.Row{}, list.Rows, "a list, also if it is empty")
		assert.LessOrEqual(t, time.Since(began), time.Second)
		time.Sleep(took)
		list = ask[pagejson.List](t, h, owedOfAPI)
		assert.False(t, list.Pending)
		assert.Len(t, list.Rows, 200)
		assert.InDelta(t, (took + 250*time.Millisecond).Seconds(), list.Age, .1, "from the instant of the list")
		for _, row := range list.Rows {
			assert.InDelta(t, 3600-list.Age, row.Returns, 1, "from now on")
		}

		time.Sleep(10*took + took/2) // the next walk is wanted, and under way
		looked := looks.Load()
		for range 3 {
			began, old := time.Now(), ask[pagejson.List](t, h, owedOfAPI)
			assert.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			assert.Greater(t, old.Age, list.Age+200)
			assert.Equal(t, list.Rows[0].ID, old.Rows[0].ID)
			assert.Equal(t, list.Next, old.Next)
		}
		time.Sleep(2 * took)
		assert.Greater(t, looks.Load(), looked)
		assert.InDelta(t, 40, ask[pagejson.List](t, h, owedOfAPI).Age, 1, "it was made meanwhile")
	})
}

// A walk that panics or ends its goroutine costs a list of its own limit, however often.
func TestListsOutliveTheirWalks(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				api := newEngine(t, engine.Config{Name: "api"}, engine.PolicyFor(func(string) policy.Policy {
					if broken.Load() {
						end()
					}
					return nil
				}))
				other := newEngine[string](t, engine.Config{Name: "other"})
				h := newHandler(t, inspect.Config{ShowKeys: true}, inspect.Limit[string]{Limiter: api}, inspect.Limit[string]{Limiter: other})
				api.Take("a", 3)
				other.Take("b", 4)
				assert.Equal(t, "a", ask[pagejson.List](t, h, owedOfAPI).Rows[0].Key)
				broken.Store(true)
				for range 50 {
					time.Sleep(600 * time.Millisecond)
					refusesList(t, h, owedOfAPI, http.StatusServiceUnavailable, "could not be listed")
					assert.Equal(t, "b", ask[pagejson.List](t, h, "keys?limit=other&by=owed").Rows[0].Key)
				}
				broken.Store(false)
				time.Sleep(time.Second)
				assert.Equal(t, "a", ask[pagejson.List](t, h, owedOfAPI).Rows[0].Key)
			})
		})
	}
}

func refusesList(t *testing.T, h *inspect.Handler, path string, status int, says string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://server/"+path, http.NoBody))
	require.Equal(t, status, w.Code, "%s", w.Body)
	assert.Contains(t, w.Body.String(), says)
}

// A closed handler has its last list, if there is one.
func TestNoWalksAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, looks := walked(t, 10, nil)
		refusesList(t, h, owedOfAPI+"&after=1.7ff8000000000001.1.1", http.StatusBadRequest, "earlier page") // a NaN
		assert.Zero(t, looks.Load())
		list := ask[pagejson.List](t, h, owedOfAPI)
		require.NoError(t, h.Close())
		time.Sleep(time.Minute)
		looked := looks.Load()
		later := ask[pagejson.List](t, h, owedOfAPI)
		assert.Equal(t, len(list.Rows), len(later.Rows))
		assert.InDelta(t, 60, later.Age, 1)
		assert.Equal(t, looked, looks.Load())

		h, _ = walked(t, 10, nil)
		require.NoError(t, h.Close())
		refusesList(t, h, owedOfAPI, http.StatusServiceUnavailable, "the handler is closed")
	})
}
