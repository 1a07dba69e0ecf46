package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/policy"
)

// fixed is an engine with any counters.
type fixed struct {
	stats engine.Stats
	err   error
}

func (f *fixed) Stats() engine.Stats { return f.stats }
func (f *fixed) Health() error       { return f.err }

// values reads a source by "name" or "name value".
func values(s *metrics.Source) map[string]float64 {
	all := map[string]float64{}
	read := s.Read(nil)
	for i, series := range s.Series() {
		if !math.IsNaN(read[i]) {
			all[strings.TrimSpace(series.Metric.Name+" "+series.Value)] = read[i]
		}
	}
	return all
}

// Promise: Each counter has a series, and vice versa.
func TestEachCounterOfAnEngineHasASeries(t *testing.T) {
	noMetric := map[string]bool{"Name": true, "Clock": true, "At": true, "SavedAt": true, "UnsavedSince": true, "SaveError": true, "KeysByUse": true}
	read := map[string]string{}
	f := &fixed{}
	f.stats.Name = "api"
	f.stats.SavedAt, f.stats.KeysByUse.At = time.Unix(1000, 0), time.Unix(1000, 0)
	f.stats.UnsavedSince = f.stats.SavedAt
	source := metrics.Engine(f)
	require.NoError(t, source.Err())
	before := values(source)
	set := func(of reflect.Value) {
		for i := range of.NumField() {
			field, name := of.Field(i), of.Type().Field(i).Name
			if noMetric[name] {
				continue
			}
			was := field.Interface()
			switch {
			case field.CanInt():
				field.SetInt(7e9)
			case field.CanUint():
				field.SetUint(7e9)
			default:
				t.Fatalf("Stats.%s is of a kind that no series has", name)
			}
			var changed []string
			for series, value := range values(source) {
				if value != before[series] {
					changed = append(changed, series)
					want := 7e9
					if field.Type() == reflect.TypeFor[time.Duration]() {
						want = 7
					}
					assert.InDelta(t, want, value, 0, series)
				}
			}
			if assert.Len(t, changed, 1, "series of Stats.%s", name) {
				assert.Empty(t, read[changed[0]], "%s is also read from Stats.%s", changed[0], name)
				read[changed[0]] = name
			}
			field.Set(reflect.ValueOf(was))
		}
	}
	set(reflect.ValueOf(&f.stats).Elem())
	set(reflect.ValueOf(&f.stats.KeysByUse).Elem())
	// Names say their source.
	assert.Equal(t, "Forgiven", read["ral.forgiven_keys"])
	for reason, field := range map[string]string{
		"over_limit": "OverLimit", "blocked": "Blocked", "misfit": "Misfits", "unavailable": "UnavailableRefused",
		"full": "FullRefused", "crowded": "Crowded", "late": "Late", "cancelled": "Cancelled",
	} {
		assert.Equal(t, field, read["ral.refusals "+reason])
	}
	assert.Equal(t, "Full", read["ral.unrecorded_calls full"])
	assert.Equal(t, "Most", read["ral.keys_by_use most"])
	assert.Equal(t, "Penalties", read["ral.blocks penalty"])
	assert.Equal(t, "QueueDepth", read["ral.queued_commands"])
	assert.Equal(t, "Unsaved", read["ral.save.keys unsaved"])
	assert.Len(t, before, len(read)+3, "and these: healthy, save.failing, save.timestamp")
}

func TestStatesOfAnEngineAreRead(t *testing.T) {
	f := &fixed{stats: engine.Stats{Name: "api"}}
	source := metrics.Engine(f)
	before := values(source)
	assert.NotContains(t, before, "ral.save.timestamp", "no state is saved")
	assert.NotContains(t, before, "ral.save.duration", "there was no save")
	assert.NotContains(t, before, "ral.keys_by_use all", "there was no count")
	assert.EqualValues(t, 1, before["ral.healthy"])
	assert.EqualValues(t, 0, before["ral.save.failing"])
	f.stats.UnsavedSince, f.stats.SaveError, f.err = time.UnixMilli(1_700_000_000_500), errors.New("no space"), engine.ErrUnsaved
	after := values(source)
	assert.NotContains(t, after, "ral.save.duration", "none has succeeded yet")
	assert.InDelta(t, 1_700_000_000.5, after["ral.save.timestamp"], 1e-6)
	assert.EqualValues(t, 0, after["ral.healthy"])
	assert.EqualValues(t, 1, after["ral.save.failing"])
}

func TestEachCounterOfAMiddlewareAndATrialHasASeries(t *testing.T) {
	limiter := newEngine(t, engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	m := httplimit.Must(httplimit.New(limiter, httplimit.ByHeader("Key"), httplimit.Options{}))
	counters := func(of reflect.Type) (n int) {
		for i := range of.NumField() {
			if f := of.Field(i); f.Type.Kind() != reflect.Map {
				n++
			}
		}
		return n
	}
	assert.Len(t, m.Metrics("web").Series(), counters(reflect.TypeFor[httplimit.Stats]()))
	candidate := newEngine(t, engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	candidate.Choke("a")
	trial := must.Get(limits.NewTrial(limits.TrialConfig[string]{Live: limiter, Candidate: candidate}))
	source := metrics.Trial("new limit", trial)
	require.NoError(t, source.Err())
	assert.Len(t, source.Series(), counters(reflect.TypeFor[limits.TrialStats]()))
	must.Get(trial.Admit(context.Background(), "a", 1))
	assert.EqualValues(t, 1, values(source)["ral.trial.calls would_refuse"])
}

func newEngine(t *testing.T, config engine.Config) *engine.Engine[string] {
	e := must.Get(engine.New[string](config))
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

func TestTiersHaveNamesOfTheirOwn(t *testing.T) {
	tiered := must.Get(engine.NewTiered[string](engine.Config{Name: "api", Policy: policy.Must(policy.Funnel(2, 1, time.Hour))},
		policy.Must(policy.Funnel(1, 1, time.Hour))))
	defer tiered.Close()
	tiered.Choke("a")
	tiered.Choke("a")
	source := metrics.Tiered(tiered)
	require.NoError(t, source.Err())
	read, calls := source.Read(nil), map[string]float64{}
	for i, s := range source.Series() {
		if s.Metric.Name == "ral.calls" {
			calls[s.Limit+" "+s.Value] = read[i]
		}
	}
	assert.Len(t, calls, 4)
	for _, part := range tiered.Explain("a").Each {
		assert.Contains(t, calls, part.Name+" admitted", "an explanation has the same names")
	}
	assert.EqualValues(t, 1, calls["api admitted"])
	assert.EqualValues(t, 1, calls["api.2 admitted"])
	assert.EqualValues(t, 1, calls["api.2 refused"])
}

func TestErrorsOfArgumentsSayTheAcceptedValues(t *testing.T) {
	one := func(*int) any { return 1 }
	snapshot := func() int { return 1 }
	calls, keys := metrics.Metric{Name: "ral.calls"}, metrics.Metric{Name: "ral.keys"}
	table := func(lines ...metrics.Reading[int]) *metrics.Source { return metrics.New("a", snapshot, lines) }
	var none *metrics.Source
	for want, s := range map[string]*metrics.Source{
		"name is \"\"":                                metrics.New("", snapshot, []metrics.Reading[int]{}),
		"name is \"\\xff\"":                           metrics.New("\xff", snapshot, []metrics.Reading[int]{}),
		"snapshot is nil":                             metrics.New[int]("a", nil, nil),
		"the Name \"ral.other\" and no Help":          table(metrics.Reading[int]{Metric: metrics.Metric{Name: "ral.other"}, Of: one}),
		"the Name \"\" and no Help":                   table(metrics.Reading[int]{Value: "admitted", Of: one}),
		"table[0].Of is nil":                          table(metrics.Reading[int]{Metric: keys}),
		"table[0].Value is \"\"":                      table(metrics.Reading[int]{Metric: calls, Of: one}),
		"table[0].Value is \"some\"":                  table(metrics.Reading[int]{Metric: keys, Value: "some", Of: one}),
		"table[1] is ral.keys \"\", which an earlier": table(metrics.Reading[int]{Metric: keys, Of: one}, metrics.Reading[int]{Metric: keys, Of: one}),
		"want a Limiter from single.New":              metrics.Single("a", nil),
		"the engine is nil":                           metrics.Engine((*engine.Engine[string])(nil)),
		"the limiter is nil":                          metrics.Tiered[string](nil),
		"the trial is nil":                            metrics.Trial("a", nil),
		"the Source is nil":                           none,
	} {
		assert.ErrorContains(t, s.Err(), want)
	}
	assert.NoError(t, (&metrics.Source{}).Err())
	assert.Empty(t, (&metrics.Source{}).Read(nil))
}

// 10,000 keys, refusals and a block add none.
//
// Promise: No series depends on the keys.
func TestSeriesDoNotDependOnTheKeys(t *testing.T) {
	e := newEngine(t, engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	source := metrics.Engine(e)
	before := source.Series()
	for i := range 10_000 {
		key := fmt.Sprint("key-", i)
		e.Choke(key)
		e.Choke(key)
	}
	require.NoError(t, e.Block("key-1", time.Hour))
	assert.Equal(t, before, source.Series())
	assert.Len(t, source.Read(nil), len(before))
	after := values(source)
	assert.EqualValues(t, 10_000, after["ral.calls admitted"])
	assert.EqualValues(t, 10_000, after["ral.calls refused"])
	assert.EqualValues(t, 10_000, after["ral.keys"])
}

// Promise: A scrape allocates no more with more keys.
func TestReadAllocatesNoMoreWithMoreKeys(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	e := newEngine(t, engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	source := metrics.Engine(e)
	into := make([]float64, 0, len(source.Series()))
	read := func() { into = source.Read(into[:0]) }
	few := testing.AllocsPerRun(100, read)
	for i := range 20_000 {
		e.Choke(fmt.Sprint("key-", i))
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(100, read), few+1)
	assert.LessOrEqual(t, few, 10.0)
	assert.False(t, math.IsNaN(into[0]))
}
