package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		about    string
		old, new []float64
		lower    bool
		want     Verdict
	}{
		{"all lower", []float64{10, 11, 12, 13, 14}, []float64{5, 6, 7, 8, 9}, true, Better},
		{"all lower, but that is worse", []float64{10, 11, 12, 13, 14}, []float64{5, 6, 7, 8, 9}, false, Worse},
		{"all higher", []float64{5, 6, 7, 8, 9}, []float64{10, 11, 12, 13, 14}, true, Worse},
		{"mixed", []float64{5, 9, 7, 12, 8}, []float64{6, 10, 7, 11, 9}, true, noise},
		{"all lower, but by next to nothing", []float64{1000, 1001, 1002, 1003, 1004}, []float64{995, 996, 997, 998, 999}, true, noise},
		{"an outlier changes nothing", []float64{10, 11, 10, 11, 500}, []float64{10, 11, 10, 11, 10}, true, noise},
		{"all the same", []float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, true, noise},
		{"three rounds can never tell", []float64{1, 1, 1}, []float64{9, 9, 9}, true, tooFew},
		{"one can even less", []float64{1}, []float64{9}, true, tooFew},
		{"nothing", nil, []float64{9, 9, 9, 9}, true, tooFew},
		{"zeros have no ratio", []float64{0, 0, 0, 0}, []float64{1, 2, 3, 4}, true, noise},
	} {
		old := append([]float64(nil), c.old...)
		v, p := judge(c.old, c.new, c.lower)
		assert.Equal(t, c.want, v, c.about)
		assert.Equal(t, v == tooFew, math.IsNaN(p), c.about)
		assert.Equal(t, old, c.old, "the values stay as they were")
	}
}

func TestJudgeSeldomRaisesAFalseAlarm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	const tries = 2000
	for range tries {
		draw := func() (values []float64) {
			for range 6 {
				values = append(values, 100*math.Exp(0.2*random.NormFloat64()))
			}
			return values
		}
		if v, _ := judge(draw(), draw(), true); v != noise {
			found++
		}
	}
	assert.InDelta(t, alpha, float64(found)/tries, 0.02)
	assert.Less(t, float64(found)/tries, alpha)
}

func TestLeastP(t *testing.T) {
	assert.InDelta(t, 0.1, leastP(3, 3), 1e-9)
	assert.InDelta(t, 2.0/252, leastP(5, 5), 1e-9)
	assert.InDelta(t, 1, leastP(1, 1), 1e-9)
	assert.Less(t, leastP(1000, 1000), 1e-100)
}

func TestJudgeSingle(t *testing.T) {
	assert.Equal(t, single, judgeSingle(100, 109))
	assert.Equal(t, singleUp, judgeSingle(100, 120))
	assert.Equal(t, singleDown, judgeSingle(100, 80))
	assert.Equal(t, single, judgeSingle(0, 5), "no ratio")
}

func TestEveryVerdictHasWords(t *testing.T) {
	for v := noise; v <= onlyMachine; v++ {
		assert.NotEmpty(t, v.String())
	}
}
