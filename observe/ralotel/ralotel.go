// Package ralotel exports limiters to OpenTelemetry: counters as observable instruments, and
// refused and delayed requests as events of their spans.
//
//	registration, err := ralotel.Register(meter, metrics.Engine(limiter))
//
//	options := httplimit.Options{OnVerdict: ralotel.Trace}
//
// Counters are read when the meter's readers collect; calls pay nothing. Package metrics has the
// names, the same as in module observe/ralprom.
package ralotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ral-limiter/ral/observe/metrics"
)

// registered finds duplicate series of a meter. OpenTelemetry would keep either.
var registered = struct {
	sync.Mutex
	byMeter map[metric.Meter]map[id]bool
}{byMeter: map[metric.Meter]map[id]bool{}}

type id struct{ metric, limit, value string }

// Register has the meter observe the limiters, all or none, until Unregister of the result. The
// error wraps metrics.ErrDuplicate and names the limiter if its name is registered with the meter.
// It is a source's Err if the source was made with wrong arguments. otel.SetMeterProvider changes
// the meters of otel.Meter: call it before Register, or duplicates across it go unnoticed.
func Register(meter metric.Meter, sources ...*metrics.Source) (metric.Registration, error) {
	if meter == nil {
		return nil, errors.New("ralotel: the meter is nil, want one, such as otel.Meter returns")
	}
	var own []metrics.Series
	for _, source := range sources {
		if err := source.Err(); err != nil {
			return nil, err
		}
		own = append(own, source.Series()...)
	}
	registered.Lock()
	defer registered.Unlock()
	remembered := reflect.ValueOf(meter).Comparable() // otherwise it cannot be found again
	var others map[id]bool
	if remembered {
		others = registered.byMeter[meter]
	}
	ids := map[id]bool{}
	for _, s := range own {
		series := id{s.Metric.Name, s.Limit, s.Value}
		if ids[series] || others[series] {
			return nil, fmt.Errorf("%w: %q; give each a Name of its own, or register them with different meters", metrics.ErrDuplicate, s.Limit)
		}
		ids[series] = true
	}
	observed, instruments, err := observe(meter, own)
	if err != nil {
		return nil, err
	}
	made, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		values := make([]float64, 0, len(observed))
		for _, source := range sources {
			values = source.Read(values)
		}
		for i, value := range values {
			if !math.IsNaN(value) {
				to.ObserveFloat64(observed[i].instrument, value, observed[i].attributes...)
			}
		}
		return nil
	}, instruments...)
	if err != nil {
		return nil, err
	}
	if remembered {
		if others == nil {
			others = map[id]bool{}
			registered.byMeter[meter] = others
		}
		maps.Copy(others, ids)
	}
	return &registration{Registration: made, meter: meter, ids: ids, remembered: remembered}, nil
}

type observed struct {
	instrument metric.Float64Observable
	attributes []metric.ObserveOption
}

func observe(meter metric.Meter, series []metrics.Series) (all []observed, instruments []metric.Observable, err error) {
	known := map[string]metric.Float64Observable{}
	for _, s := range series {
		m := s.Metric
		instrument := known[m.Name]
		if instrument == nil {
			if m.Gauge {
				instrument, err = meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
			} else {
				instrument, err = meter.Float64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
			}
			if err != nil {
				return nil, nil, err
			}
			known[m.Name] = instrument
			instruments = append(instruments, instrument)
		}
		labels := []attribute.KeyValue{attribute.String(metrics.LimitLabel, s.Limit)}
		if m.Label != "" {
			labels = append(labels, attribute.String(m.Label, s.Value))
		}
		all = append(all, observed{instrument, []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(labels...))}})
	}
	return all, instruments, nil
}

// registration frees the names when it ends.
type registration struct {
	metric.Registration
	meter      metric.Meter
	ids        map[id]bool
	remembered bool
	once       sync.Once
}

// Unregister ends the observation. It may be called more than once.
func (r *registration) Unregister() error {
	err := r.Registration.Unregister()
	if err == nil && r.remembered {
		r.once.Do(r.forget)
	}
	return err
}

func (r *registration) forget() {
	registered.Lock()
	defer registered.Unlock()
	left := registered.byMeter[r.meter]
	for series := range r.ids {
		delete(left, series)
	}
	if len(left) == 0 {
		delete(registered.byMeter, r.meter)
	}
}
