package main

import (
	"os"
	"testing"
	"time"

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

// TestSharesAreWhatTheirPicturesSay has the figures that docs/shares.md takes from the pictures.
func TestSharesAreWhatTheirPicturesSay(t *testing.T) {
	const shares, rulesOfHTB, split, one = 0, 1, 2, 3
	play := func(scene int) (all []outcome) {
		for _, way := range must.Get(sharings()) {
			all = append(all, way.play(scenes()[scene].requests))
		}
		return all
	}
	within := func(name string, n, low, high int) {
		t.Helper()
		if n < low || n > high {
			t.Errorf("%s: %d, want %d to %d", name, n, low, high)
		}
	}
	seconds := int(length / time.Second)
	lone := play(0)
	within("a lone tenant has the whole rate", len(lone[shares].admitted[0]), seconds*groupRate, seconds*groupRate+groupCapacity)
	within("and half of it in a split", len(lone[split].admitted[0]), seconds*groupRate/2, seconds*groupRate/2+groupCapacity/2)
	greedy := play(1)
	for _, way := range []int{shares, rulesOfHTB, split} {
		within("a tenant below its guarantee is never refused", len(greedy[way].refused[1]), 0, 0)
	}
	within("it is in one limit for both", len(greedy[one].refused[1]), seconds*10, seconds*25)
	within("the greedy tenant uses what is left", len(greedy[shares].admitted[0]), seconds*75, seconds*75+groupCapacity)
	back := play(2)
	within("the burst passes whole", len(back[shares].refused[1]), 0, 0)
	within("not in one limit for both", len(back[one].refused[1]), 15, 200)
	for _, way := range []int{shares, split, one} {
		within("the group holds at most C", int(back[way].level), 0, groupCapacity)
	}
	within("HTB exceeds it by a burst", int(back[rulesOfHTB].level), groupCapacity+15, groupCapacity+tenants*guaranteeCapacity)
}
