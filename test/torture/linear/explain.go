package linear

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// explain tells how far the calls on a key can be explained: the longest ordered row that gives
// their answers, and the calls that should come next.
func explain(scenario *Scenario, history []Op, taken uint64, key int, limit time.Duration) string {
	var ops []*Op
	for i := range history {
		if history[i].Key == key {
			ops = append(ops, &history[i])
		}
	}
	m := &model{s: scenario, spread: spreads(ops)}
	spec := m.spec(int(min(taken, most)))
	_, info := porcupine.CheckOperationsVerbose(spec, operations(ops), limit)
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	var builder strings.Builder
	explained := map[*Op]bool{}
	state := spec.Init()
	for _, operation := range longest {
		op := operation.Input.(*Op)
		explained[op] = true
		_, state = spec.Step(state, op, nil)
		fmt.Fprintf(&builder, "  %v\n", op)
	}
	fmt.Fprintf(&builder, "leaves %s, and none of these can come next:\n", spec.DescribeState(state))
	rest := slices.DeleteFunc(ops, func(op *Op) bool { return explained[op] })
	slices.SortStableFunc(rest, func(a, b *Op) int { return int(a.Call - b.Call) })
	first := int64(1<<63 - 1) // to return, of those that are left
	for _, op := range rest {
		if op.Call > first {
			break
		}
		first = min(first, op.Return)
		fmt.Fprintf(&builder, "  %v\n", op)
	}
	return builder.String()
}
