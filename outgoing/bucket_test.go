package outgoing

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Discord's routes of a channel share 5 calls in a second, told as its documentation has it.
//
// Promise: Keys whose answers name the same limit share it.
func TestKeysOfOneBucketShareItsLimit(t *testing.T) {
	const limit, during = 5, 60
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		used, ends := make(map[string]int), make(map[string]time.Time)
		far := &away{rtt: 20 * time.Millisecond, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			channel := strings.Split(r.URL.Path, "/")[1]
			if now := time.Now(); now.After(ends[channel]) {
				used[channel], ends[channel] = 0, now.Add(time.Second)
			}
			status := http.StatusTooManyRequests
			if used[channel] < limit {
				used[channel]++
				status = http.StatusOK
			}
			h := w.Header()
			h.Set("X-RateLimit-Bucket", "abcd1234")
			h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(limit-used[channel]))
			h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", time.Until(ends[channel]).Seconds()))
			w.WriteHeader(status)
		})}
		rt, err := NewTransport(newLine(t, Config{}), func(r *http.Request) string { return r.URL.Path }, Options{
			Base: far,
			Bucket: func(resp *http.Response) string {
				return resp.Header.Get("X-RateLimit-Bucket") + strings.Split(resp.Request.URL.Path, "/")[1]
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(during*time.Second, cancel).Stop()
		var all sync.WaitGroup
		for _, path := range [...]string{"/one/messages", "/one/pins", "/one/typing", "/two/messages", "/two/pins"} {
			for range 10 {
				all.Go(func() {
					for ctx.Err() == nil {
						r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://there"+path, nil)
						if resp, err := rt.RoundTrip(r); err == nil {
							_ = resp.Body.Close()
						}
					}
				})
			}
		}
		all.Wait()
		assert.LessOrEqual(t, far.refused+far.early, 8, "more calls were refused or early than until a call of each key was served")
		assert.GreaterOrEqual(t, len(far.admitted), 2*limit*during*90/100)
		assert.Zero(t, rt.line.Stats().Waiting)
	})
}

// What is remembered of buckets is bounded, and a limit may change its name.
func TestBucketsAreBounded(t *testing.T) {
	b := buckets[int]{max: 4}
	assert.Equal(t, 7, b.key(7))
	b.learn(1, "a")
	b.learn(2, "a")
	b.learn(3, "")
	b.learn(4, strings.Repeat("a", maxBucketName+1))
	assert.Equal(t, []int{1, 1, 3, 4}, []int{b.key(1), b.key(2), b.key(3), b.key(4)})
	b.learn(2, "b")
	b.learn(1, "b")
	assert.Equal(t, []int{2, 2}, []int{b.key(1), b.key(2)})
	for key := range 100 {
		b.learn(key, strconv.Itoa(key))
		assert.LessOrEqual(t, max(len(b.targets), len(b.first)), 4)
	}
}
