package lease

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// generous is the limit of an exchange with Redis on a busy machine.
const generous = time.Minute

func connect(addr string, limit policy.Policy) (*Leases, *OnStore, rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return nil, nil, nil, err
	}
	plan, err := NewPlan(limit, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	direct := store.New(client, store.Options{Name: "redis"})
	kept, err := direct.Limit(plan.Policy)
	if err != nil {
		return nil, nil, nil, err
	}
	bank := NewOnStore(direct, plan, kept)
	l, err := New(Config{Plan: plan, Bank: bank, Name: store.Short, Servers: func() int { return servers }, Timeout: generous})
	return l, bank, client, err
}

// Units of a window come back at once. Of a funnel all may have drained.
func TestCloseGivesBackToRedis(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for i, limit := range []policy.Policy{must(policy.FixedWindow(500, time.Hour)), must(policy.SlidingWindow(500, time.Hour))} {
		t.Run(limit.String(), func(t *testing.T) {
			key := [...]string{"key", strings.Repeat("key", 20_000)}[i]
			l, bank, client, err := connect(redis.Addr(), limit)
			require.NoError(t, err)
			defer client.Close()
			used := int64(0)
			for l.Held(key) < 10 {
				d, err := takeFrom(l, key, 1, generous)
				require.NoError(t, err)
				if d.Allowed {
					used++
				}
			}
			require.NoError(t, l.Close(context.Background()))
			taken, err := bank.store.(*store.Store).Peek(context.Background(), bank.limit, key)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, taken.Remaining, l.Limit()-used)
			assert.Positive(t, l.Stats().Returned)
		})
	}
}

// The delay that Redis may have counts as age.
func TestFunnelGivesBackTheUndrainedUnits(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	l, bank, client, err := connect(redis.Addr(), must(policy.Funnel(400, 2000, time.Second)))
	require.NoError(t, err)
	defer client.Close()
	defer func() { assert.NoError(t, l.Close(context.Background())) }()
	g := bank.Lease(context.Background(), []Ask{{Key: "other", Need: 200, Most: 200}})[0]
	require.NoError(t, g.Err)
	require.EqualValues(t, 200, g.Units)
	require.NoError(t, bank.Return(context.Background(), []Back{{Name: "other", Units: 200, Word: g.Word, At: g.At}}))
	taken, err := bank.store.(*store.Store).Peek(context.Background(), bank.limit, "other")
	require.NoError(t, err)
	drained := int64(taken.At-g.At)*2000/int64(time.Second) + 1
	late := int64(inTime) * 2000 / int64(time.Second)
	assert.LessOrEqual(t, taken.Remaining, l.Limit()-late+drained)
	assert.GreaterOrEqual(t, taken.Remaining, l.Limit()-late-1-drained)
}
