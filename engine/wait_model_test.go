package engine

import (
	"cmp"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gcra is an independent model of a funnel in rational numbers.
type gcra struct {
	interval, depth, tat *big.Rat // nanoseconds
}

func newGCRA(capacity, count int64, per time.Duration) *gcra {
	interval := big.NewRat(int64(per), count)
	return &gcra{interval, new(big.Rat).Mul(interval, big.NewRat(capacity, 1)), new(big.Rat)}
}

// earliest is when n units may be used, for calls in order of time.
func (g *gcra) earliest(n int64) *big.Rat {
	at := new(big.Rat).Mul(g.interval, big.NewRat(n, 1))
	return at.Add(at, g.tat).Sub(at, g.depth)
}

func (g *gcra) use(at time.Duration, n int64) {
	if t := big.NewRat(int64(at), 1); g.tat.Cmp(t) < 0 {
		g.tat = t
	}
	g.tat = new(big.Rat).Add(g.tat, new(big.Rat).Mul(g.interval, big.NewRat(n, 1)))
}

func up(r *big.Rat) time.Duration {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return time.Duration(q.Int64())
}

// waited is a call of Wait, or of Choke.
type waited struct {
	index       int // in order of arrival; -1 for Choke
	n           int64
	came, ended time.Duration
	err         error
}

// served checks that admitted calls keep to the limit in every window. A turn that is rounded up to
// a whole nanosecond shortens its window by less than that.
func served(t testing.TB, model *gcra, calls []waited) {
	t.Helper()
	slack := time.Duration(0)
	if !model.interval.IsInt() {
		slack = 1
	}
	for _, w := range calls {
		if w.err == nil {
			require.LessOrEqual(t, model.earliest(w.n).Cmp(big.NewRat(int64(w.ended+slack), 1)), 0,
				"%+v is %v early", w, up(model.earliest(w.n))-w.ended)
			model.use(w.ended, w.n)
		}
	}
}

// notWasted checks that every call was served as early as the model allows. Intervals are in
// sixteenths of a nanosecond, which adds up.
func notWasted(t testing.TB, model *gcra, calls []waited) {
	t.Helper()
	byArrival := slices.Clone(calls)
	slices.SortFunc(byArrival, func(a, b waited) int { return cmp.Compare(a.index, b.index) })
	var gone time.Duration // when the last call before has left
	units := int64(0)
	for _, w := range byArrival {
		if w.err == nil {
			first := max(up(model.earliest(w.n)), w.came, gone)
			units += w.n
			slack := time.Duration(units/16 + 1)
			if model.interval.IsInt() {
				slack = 0
			}
			require.LessOrEqual(t, w.ended, first+slack, "%+v is %v late", w, w.ended-first)
			model.use(w.ended, w.n)
		}
		gone = max(gone, w.ended)
	}
}
