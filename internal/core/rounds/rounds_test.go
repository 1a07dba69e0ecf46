package rounds

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// ring is deficit round robin as it is written down: it grants a quantum to each tenant, round after round.
type ring []*member

type member struct {
	quantum, cost, credit float64
	waits                 bool
}

// rounds returns how many rounds pass before the member is due.
func (m *member) rounds() (n int) {
	for m.credit+float64(n)*m.quantum < m.cost {
		n++
	}
	return n
}

func (r ring) next() (first int) {
	first = -1
	for i, m := range r {
		if m != nil && m.waits && (first < 0 || m.rounds() < r[first].rounds()) {
			first = i
		}
	}
	return first
}

func (r ring) serve(i int) {
	n := 0
	if i == r.next() {
		n = r[i].rounds()
	}
	for _, m := range r {
		if m != nil && m.waits {
			m.credit += float64(n) * m.quantum
		}
	}
	r[i].waits = false
	r[i].credit = max(r[i].credit-r[i].cost, 0)
}

// TestTurnsAreThoseOfDeficitRoundRobin compares the order of turns with a ring, as tenants come, leave, are served
// out of turn, and change the cost of their first call.
func TestTurnsAreThoseOfDeficitRoundRobin(t *testing.T) {
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for range 200 {
		var l Line[int]
		var model ring
		var tenants []*Tenant[int]
		turns := 0
		for range 200 {
			i := -1
			if len(tenants) > 0 {
				i = dice.IntN(len(tenants))
			}
			switch dice.IntN(8) {
			case 0:
				tenants = append(tenants, &Tenant[int]{Key: len(tenants), Quantum: float64(1 + dice.IntN(20))})
				i = len(tenants) - 1
				model = append(model, &member{quantum: tenants[i].Quantum})
				fallthrough
			case 1: // another first call
				if i < 0 || model[i] == nil {
					continue
				}
				cost := float64(1 + dice.IntN(50))
				l.Enter(tenants[i], cost)
				model[i].cost, model[i].waits = cost, true
			case 2:
				if i < 0 || model[i] == nil {
					continue
				}
				l.Leave(tenants[i])
				model[i] = nil // whether it comes again does not matter to the others
			case 3:
				if i < 0 || model[i] == nil || !model[i].waits {
					continue
				}
				l.Serve(tenants[i])
				model.serve(i)
			default:
				first := model.next()
				if first < 0 {
					require.Nil(t, l.Next())
					continue
				}
				turns++
				require.Equal(t, first, l.Next().Key)
				l.Serve(tenants[first])
				model.serve(first)
				if dice.IntN(4) > 0 {
					cost := float64(1 + dice.IntN(50))
					l.Enter(tenants[first], cost)
					model[first].cost, model[first].waits = cost, true
				}
			}
		}
		assert.Positive(t, turns)
	}
}

// TestOnlyCallWaitsForItsRounds has tenants that always wait, and one with a single call: until it is served, each
// other gets at most a quantum for each of ceil(cost/quantum) rounds and for the present one, and the grants that
// its first call did not reach before.
func TestOnlyCallWaitsForItsRounds(t *testing.T) {
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 2))
	for range 500 {
		var l Line[int]
		const others, largest = 10, 40
		var tenants []*Tenant[int]
		cost := func() float64 { return float64(1 + dice.IntN(largest)) }
		costs := make([]float64, others)
		for i := range others {
			tenants = append(tenants, &Tenant[int]{Key: i, Quantum: float64(1 + dice.IntN(15))})
			costs[i] = cost()
			l.Enter(tenants[i], costs[i])
		}
		served := make([]float64, others)
		serve := func() {
			i := l.Next().Key
			l.Serve(l.Next())
			served[i] += costs[i]
			costs[i] = cost()
			l.Enter(tenants[i], costs[i])
		}
		for range dice.IntN(200) {
			serve()
		}
		before := slices.Clone(served)
		only := &Tenant[int]{Key: -1, Quantum: float64(1 + dice.IntN(15))}
		n := cost()
		l.Enter(only, n)
		for l.Next() != only {
			serve()
		}
		rounds := math.Ceil(n / only.Quantum)
		for i := range served {
			require.Less(t, served[i]-before[i], (rounds+1)*tenants[i].Quantum+largest, "%v rounds", rounds)
		}
	}
}

// TestTenantsThatWaitShareByWeight checks that, of tenants that always wait, none is further than a round and a call
// from another, whatever their costs.
func TestTenantsThatWaitShareByWeight(t *testing.T) {
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 3))
	var l Line[int]
	const largest = 40
	quanta, served, costs := []float64{1, 2.5, 5, 25}, make([]float64, 4), make([]float64, 4)
	var tenants []*Tenant[int]
	enter := func(i int) {
		costs[i] = 1
		if i%2 == 0 {
			costs[i] = float64(1 + dice.IntN(largest))
		}
		l.Enter(tenants[i], costs[i])
	}
	for i, quantum := range quanta {
		tenants = append(tenants, &Tenant[int]{Key: i, Quantum: quantum})
		enter(i)
	}
	for range 500_000 {
		i := l.Next().Key
		l.Serve(tenants[i])
		served[i] += costs[i]
		enter(i)
		for j := range quanta {
			if served[i]/quanta[i]-served[j]/quanta[j] > 1+largest/quanta[j] {
				t.Fatal(served)
			}
		}
	}
	assert.Greater(t, served[0], 10_000.0)
}

// TestAheadIsLowerBound serves lines to their end, and compares the units before a call with what was foretold.
func TestAheadIsLowerBound(t *testing.T) {
	dice := rand.New(rand.NewPCG(testenv.Seed(t), 4))
	foretold, all := 0.0, 0.0
	for range 500 {
		var l Line[int]
		var tenants []*Tenant[int]
		var queues [][]float64
		for i := range 1 + dice.IntN(8) {
			tenant := &Tenant[int]{Key: i, Quantum: float64(1 + dice.IntN(15))}
			var queue []float64
			for range 1 + dice.IntN(6) {
				queue = append(queue, float64(1+dice.IntN(30)))
				tenant.Units += queue[len(queue)-1]
				tenant.Largest = max(tenant.Largest, queue[len(queue)-1])
			}
			if dice.IntN(4) == 0 {
				tenant.Largest = 0
			}
			tenants, queues = append(tenants, tenant), append(queues, queue)
			l.Enter(tenant, queue[0])
		}
		serve := func() (i int, cost float64) {
			i = l.Next().Key
			cost = queues[i][0]
			l.Serve(tenants[i])
			queues[i] = queues[i][1:]
			if tenants[i].Units -= cost; len(queues[i]) > 0 {
				l.Enter(tenants[i], queues[i][0])
			}
			return i, cost
		}
		for range dice.IntN(4) {
			if l.Len() > 1 {
				serve()
			}
		}
		mine := dice.IntN(len(tenants))
		n := float64(1 + dice.IntN(30))
		before := tenants[mine].Units
		ahead := l.Ahead(tenants[mine], before, n)
		if queues[mine] = append(queues[mine], n); len(queues[mine]) == 1 {
			l.Enter(tenants[mine], n)
		}
		tenants[mine].Units += n
		behind, served := len(queues[mine]), 0.0
		for {
			i, cost := serve()
			if i == mine {
				behind--
			}
			if behind == 0 {
				break
			}
			served += cost
		}
		require.LessOrEqual(t, ahead, served)
		require.GreaterOrEqual(t, ahead, before)
		foretold, all = foretold+ahead, all+served
	}
	assert.Greater(t, foretold, 0.7*all)
}
