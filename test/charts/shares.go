package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Two tenants share 100 units a second, with a capacity of 60. Each is guaranteed 30 a second, with a capacity of 20.
const (
	tenants           = 2
	groupCapacity     = 60
	groupRate         = 100
	guaranteeCapacity = 20
	guaranteeRate     = 30
)

func group() policy.Policy { return policy.Must(policy.Funnel(groupCapacity, groupRate, second)) }

func guarantee() policy.Policy {
	return policy.Must(policy.Funnel(guaranteeCapacity, guaranteeRate, second))
}

// sharing is a way to share the group. take takes a unit for a tenant.
type sharing struct {
	name string
	take func(tenant int, now policy.Instant) bool
}

// sharings returns four ways to share the group, unused.
func sharings() ([]sharing, error) {
	var clock policy.Instant
	shares, err := engine.NewShares(engine.SharesConfig[int]{
		Config:    engine.Config{Clock: func() policy.Instant { return clock }},
		Total:     group(),
		Tenants:   []int{0, 1},
		Guarantee: func(int) policy.Policy { return guarantee() },
	})
	if err != nil {
		return nil, err
	}
	var halves [tenants]uint64
	half := policy.Must(policy.Funnel(groupCapacity/tenants, groupRate/tenants, second))
	var one uint64
	return []sharing{
		{"Shares", func(tenant int, now policy.Instant) bool {
			clock = now
			return shares.Choke(tenant)
		}},
		{"The rules of HTB", newHTB().take},
		{"A static split, a half each", func(tenant int, now policy.Instant) bool {
			next, decision := half.Take(halves[tenant], now, 1, 0)
			halves[tenant] = next
			return decision.Allowed
		}},
		{"One limit for both", func(_ int, now policy.Instant) bool {
			next, decision := group().Take(one, now, 1, 0)
			one = next
			return decision.Allowed
		}},
	}, nil
}

// htb is a model of the rules of Linux' hierarchical token bucket, without its queues: a class with tokens sends, and
// its parent is charged even below 0. A class without tokens borrows from a parent with tokens.
type htb struct {
	tokens [tenants]float64
	parent float64
	last   policy.Instant
}

func newHTB() *htb {
	return &htb{tokens: [tenants]float64{guaranteeCapacity, guaranteeCapacity}, parent: groupCapacity}
}

func (h *htb) take(tenant int, now policy.Instant) bool {
	passed := float64(now-h.last) / float64(second)
	h.last = now
	for i := range h.tokens {
		h.tokens[i] = min(h.tokens[i]+passed*guaranteeRate, guaranteeCapacity)
	}
	h.parent = min(h.parent+passed*groupRate, groupCapacity)
	switch {
	case h.tokens[tenant] >= 1:
		h.tokens[tenant]--
	case h.parent < 1:
		return false
	}
	h.parent--
	return true
}

// request is a call of a tenant for a unit.
type request struct {
	instant time.Duration
	tenant  int
}

// scene is a picture's traffic.
type scene struct {
	name     string
	requests []request
}

func scenes() []scene {
	calls := func(tenant int, from, to time.Duration, rate int) (all []request) {
		gap := second / time.Duration(rate)
		for at := from + gap*time.Duration(1+tenant)/3; at < to; at += gap {
			all = append(all, request{at, tenant})
		}
		return all
	}
	burst := make([]request, guaranteeCapacity)
	for i := range burst {
		burst[i] = request{4 * second, 1}
	}
	all := []scene{
		{"a lone tenant", calls(0, 0, length, 150)},
		{"a greedy tenant beside one below its guarantee", append(calls(0, 0, length, 200), calls(1, 0, length, 25)...)},
		{"a tenant that comes back, with its burst at once", append(append(calls(0, 0, length, 200), burst...), calls(1, 4*second+second/10, length, 25)...)},
	}
	for _, scene := range all {
		slices.SortStableFunc(scene.requests, func(a, b request) int { return cmp.Compare(a.instant, b.instant) })
	}
	return all
}

// outcome holds the instants of the admitted and of the refused calls of each tenant, and the highest level of the group.
type outcome struct {
	admitted, refused [tenants][]time.Duration
	level             float64
}

func (s sharing) play(requests []request) (out outcome) {
	level, last := 0.0, time.Duration(0)
	for _, request := range requests {
		level = max(level-float64(request.instant-last)/float64(second)*groupRate, 0)
		last = request.instant
		if s.take(request.tenant, 1+policy.Instant(request.instant)) {
			level++
			out.level = max(out.level, level)
			out.admitted[request.tenant] = append(out.admitted[request.tenant], request.instant)
		} else {
			out.refused[request.tenant] = append(out.refused[request.tenant], request.instant)
		}
	}
	return out
}

// picture draws the calls of a scene under each way to share: how many of each tenant were admitted, and refused,
// within the last second.
func (s scene) picture() ([]byte, error) {
	plot.DefaultFont.Variant, plotter.DefaultFont.Variant = "Sans", "Sans"
	ways, err := sharings()
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(16*vg.Centimeter, 4*5*vg.Centimeter)
	page := vgdraw.New(canvas)
	tiles := vgdraw.Tiles{Rows: len(ways), Cols: 1, PadY: vg.Points(6)}
	for row, way := range ways {
		out := way.play(s.requests)
		chart := plot.New()
		chart.BackgroundColor = color.White
		chart.Title.Text = fmt.Sprintf("%s. The group holds at most %.0f of %d", way.name, out.level, groupCapacity)
		chart.X.Tick.Marker = marks(0, 1, 2, 3, 4, 5, 6, 7, 8)
		chart.Y.Tick.Marker = marks(0, 30, 100, 150)
		chart.X.Color, chart.Y.Color = ink, ink
		for tenant, paint := range []color.Color{blue, orange} {
			for kind, calls := range [][]time.Duration{out.admitted[tenant], out.refused[tenant]} {
				line, err := plotter.NewLine(lastSecond(calls))
				if err != nil {
					return nil, err
				}
				line.Color, line.Width = paint, vg.Points(1.5)
				name := fmt.Sprintf("%c admitted", 'A'+tenant)
				if kind == 1 {
					line.Width, line.Dashes, name = vg.Points(0.75), dashing, fmt.Sprintf("%c refused", 'A'+tenant)
				}
				chart.Add(line)
				if row == 0 {
					chart.Legend.Add(name, line)
				}
			}
		}
		// The legend stands to the right of the lines.
		chart.X.Min, chart.X.Max = 0, length.Seconds()+3
		chart.Y.Min, chart.Y.Max = 0, 180
		chart.Legend.Top, chart.Legend.Left, chart.Legend.XOffs = true, true, vg.Points(310)
		chart.Legend.ThumbnailWidth = vg.Points(14)
		chart.Draw(tiles.At(page, 0, row))
	}
	var svg bytes.Buffer
	_, err = canvas.WriteTo(&svg)
	return svg.Bytes(), err
}
