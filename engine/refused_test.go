package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRefusalsOfEveryVerbAreInTheList(t *testing.T) {
	ctx := context.Background()
	for name, refuse := range map[string]func(e *Engine[string], key string){
		"Choke":      func(e *Engine[string], key string) { e.Choke(key) },
		"Take":       func(e *Engine[string], key string) { e.Take(key, 1) },
		"Take never": func(e *Engine[string], key string) { e.Take(key, 100) },
		"TakeWith":   func(e *Engine[string], key string) { e.TakeWith(funnel(2, 1, 24*time.Hour), key, 2) },
		"Reserve":    func(e *Engine[string], key string) { e.Reserve(key, 1, 0) },
		"Ask":        func(e *Engine[string], key string) { _, _ = e.Ask(ctx, key, 1) },
		"TakeAll":    func(e *Engine[string], key string) { TakeAll(e.Claim(key, 1)) },
		"TakeAll of many": func(e *Engine[string], key string) {
			TakeAll(e.Claim(key, 1), e.Claim("a", 1), e.Claim("b", 1), e.Claim("c", 1))
		},
		"Tiered": func(e *Engine[string], key string) {
			(&Tiered[string]{engines: []*Engine[string]{e}}).Choke(key)
		},
		"Wait": func(e *Engine[string], key string) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_ = e.Wait(ended, key, 1)
		},
		"Acquire": func(e *Engine[string], key string) { _, _ = e.Acquire(ctx, key, 1, 0) },
	} {
		for _, blocked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", blocked ", blocked), func(t *testing.T) {
				e := open[string](t, Config{Policy: funnel(1, 1, 24*time.Hour)})
				require.True(t, e.Choke("key"))
				settled(t, e)
				if blocked {
					require.NoError(t, e.Block("key", time.Hour))
				}
				for range 7 {
					refuse(e, "key")
				}
				require.EqualValues(t, 7, e.Stats().Refused)
				list := e.MostRefused(10)
				require.Len(t, list.Keys, 1)
				assert.Equal(t, RefusedKey[string]{Key: "key", Refusals: 7, Least: 7, Most: 7, Last: list.Keys[0].Last}, list.Keys[0])
			})
		}
	}
}

func TestRefusedListInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Hour)})
		quiet := open[string](t, Config{Policy: funnel(1, 1, time.Hour), NoRefusedKeys: true})
		for range 11 {
			e.Choke("key")
			quiet.Choke("key")
		}
		time.Sleep(30 * time.Second)
		list := e.MostRefused(10)
		require.Len(t, list.Keys, 1)
		assert.EqualValues(t, 10, list.Total)
		assert.InDelta(t, 30*time.Second, list.For, float64(2*time.Second))
		assert.InDelta(t, 30*time.Second, list.Keys[0].Last, float64(2*time.Second))
		assert.EqualValues(t, 10, e.MostRefused(0).OthersMost)
		assert.Equal(t, RefusedList[string]{Keys: []RefusedKey[string]{}}, quiet.MostRefused(10))
	})
}
