// Package rounds decides which of the tenants that wait for a shared limit is next: deficit round robin
// by weight. The package knows no lock, clock or limit, and the units are those of the caller.
//
// In each round a waiting tenant is granted a quantum of units. Its first call is due in the round in which
// the grants reach its cost, and what is left counts for its next call. So a tenant whose only call waits is
// served in one of the ceil(cost/quantum) rounds that begin after it came, and tenants that go on waiting are
// served in the proportion of their quanta. Rounds in which no call is due are skipped: a turn costs the
// logarithm of the number of tenants.
//
// The algorithm is by M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin", 1995.
package rounds

import (
	"container/heap"
	"math"
)

// Line holds the tenants whose first call waits for a turn. The zero Line is empty. Its methods are for one
// goroutine at a time.
type Line[K any] struct {
	round  float64 // of the last turn
	places uint64  // given so far
	active order[K]
}

// Tenant is a tenant with waiting calls. Its owner makes it for the tenant's first call, changes its exported fields
// before Enter, and drops the Tenant when the last call has left.
type Tenant[K any] struct {
	Key K
	// Quantum is above 0. A changed Quantum counts from the next Enter on.
	Quantum float64
	// Units of all its waiting calls, and of the largest: 0 if only the first call is sure to have a turn.
	Units, Largest float64

	quantum, cost float64
	credit        float64 // in the round since
	since, due    float64 // rounds
	place         uint64
	index         int // in Line.active, plus 1; 0 if the tenant has no place there
}

// Len returns the number of tenants whose first call waits for a turn.
func (l *Line[K]) Len() int { return len(l.active) }

// Next returns the tenant that is next, or nil.
func (l *Line[K]) Next() *Tenant[K] {
	if len(l.active) == 0 {
		return nil
	}
	return l.active[0]
}

// Enter has the tenant's first call wait for a turn, with a cost above 0. If another call of the tenant waited,
// this call is in its place.
func (l *Line[K]) Enter(tenant *Tenant[K], cost float64) {
	if tenant.index > 0 && tenant.cost == cost && tenant.quantum == tenant.Quantum {
		return
	}
	if tenant.index > 0 {
		tenant.credit, tenant.since = tenant.credit+(l.round-tenant.since)*tenant.quantum, l.round
	} else {
		tenant.since = l.round
		if tenant.place == 0 {
			l.places++
			tenant.place = l.places
		}
	}
	tenant.cost, tenant.quantum = cost, tenant.Quantum
	tenant.due = tenant.since + max(math.Ceil((cost-tenant.credit)/tenant.quantum), 0)
	if tenant.index > 0 {
		heap.Fix(&l.active, tenant.index-1)
	} else {
		heap.Push(&l.active, tenant)
	}
}

// Leave has no call of the tenant wait for a turn, and takes back what was granted to the tenant.
func (l *Line[K]) Leave(tenant *Tenant[K]) {
	if tenant.index > 0 {
		heap.Remove(&l.active, tenant.index-1)
	}
	tenant.credit, tenant.place = 0, 0
}

// Serve ends the wait of the tenant's first call, which has its turn. If the tenant's next call
// enters now, that call enters in the same place. If the tenant is not next, no round passes.
func (l *Line[K]) Serve(tenant *Tenant[K]) {
	if tenant.index == 0 {
		return
	}
	if l.Next() == tenant {
		l.round = max(l.round, tenant.due)
	}
	heap.Remove(&l.active, tenant.index-1)
	tenant.credit = max(tenant.credit+(l.round-tenant.since)*tenant.quantum-tenant.cost, 0)
}

// maxLooks bounds the tenants that Ahead looks at.
const maxLooks = 64

// Ahead returns a lower bound of the units that are served, if no call gives up, before a call of the tenant
// that comes behind before units of its own.
func (l *Line[K]) Ahead(tenant *Tenant[K], before, cost float64) float64 {
	credit, quantum := tenant.credit, tenant.Quantum
	if tenant.index > 0 {
		credit, quantum = tenant.credit+(l.round-tenant.since)*tenant.quantum, tenant.quantum
	}
	due := l.round + max(math.Ceil((before+cost-credit)/quantum), 0)
	units := before
	for _, other := range l.active[:min(len(l.active), maxLooks)] {
		granted := other.credit + (due-1-other.since)*other.quantum
		if other == tenant || granted < other.cost {
			continue
		}
		served := granted - other.Largest // the call behind is not larger
		switch {
		case other.Largest == 0:
			served = 0
		case granted >= other.Units:
			served = other.Units
		}
		units += max(other.cost, served)
	}
	return units
}

// order is a heap of the tenants, the next first.
type order[K any] []*Tenant[K]

func (o order[K]) Len() int { return len(o) }

func (o order[K]) Less(i, j int) bool {
	if o[i].due != o[j].due {
		return o[i].due < o[j].due
	}
	return o[i].place < o[j].place
}

func (o order[K]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i+1, j+1
}

func (o *order[K]) Push(x any) {
	t := x.(*Tenant[K])
	*o = append(*o, t)
	t.index = len(*o)
}

func (o *order[K]) Pop() any {
	last := len(*o) - 1
	tenant := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	tenant.index = 0
	return tenant
}
