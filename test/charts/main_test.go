package main

import (
	"os"
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

func TestPicturesAreUpToDate(t *testing.T) {
	for name, svg := range must.Get(draw()) {
		kept, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		} else if string(kept) != string(svg) {
			t.Errorf("%s is not what the code draws any more: go run ./test/charts", name)
		}
	}
}

// Every policy admits some of docs/choosing.md's traffic, not all.
func TestEveryPolicyHasSomethingToDo(t *testing.T) {
	calls := traffic()
	if len(calls) != 1+30+30+40+30 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, s := range subjects() {
		started := play(s.policy, calls).started
		if len(started) < 10 || len(started) > len(calls)/2+20 {
			t.Errorf("%s starts %d of %d", s.name, len(started), len(calls))
		}
	}
}
