package supervisor

// Which cases of OTP's own supervisor_SUITE the tests of this package mirror.
// The tests are written afresh; only the questions are the same.
//
//	supervisor_SUITE                              here
//	--------------------------------------------  ----------------------------------------
//	sup_start_normal, order_of_children           TestStartsInOrderStopsInReverse
//	sup_start_map, sup_flags, child_specs(_map)   TestDefaults
//	sup_start_map_faulty_specs, start_error       TestNewRejects
//	sup_start_fail, sup_start_child_returns_error TestFirstInitFails
//	sup_stop_infinity                             TestForeverWaits
//	sup_stop_timeout                              TestLateChildIsAbandoned
//	permanent_normal, permanent_abnormal,
//	transient_normal, transient_abnormal,
//	temporary_normal, temporary_abnormal          TestRestartTypes
//	permanent/transient/temporary_shutdown        TestRestartTypes: there is no exit reason
//	                                              "shutdown"; nil stands for it
//	temporary_bystander                           TestTemporaryIsNotRestartedWithItsGroup
//	one_for_one                                   TestOneForOne
//	one_for_one_escalation                        TestEscalation/one_for_one
//	one_for_all                                   TestOneForAll
//	one_for_all_escalation                        TestEscalation/one_for_all
//	one_for_all_other_child_fails_restart         TestOtherChildFailsRestart/one_for_all
//	rest_for_one                                  TestRestForOne
//	rest_for_one_escalation                       TestEscalation/rest_for_one
//	rest_for_one_other_child_fails_restart        TestOtherChildFailsRestart/rest_for_one
//	tree                                          TestTree, TestNestedEscalates
//	count_children, which_children                TestChildrenAndTheirStates
//	do_not_save_child_specs_for_temporary_child   TestRestartTypes: removed from Children
//	hanging_restart_loop, ..._rest_for_one        TestInitHangsOnRestart, TestInitFailsOnRestart
//	scale_start_stop_many_children                TestManyChildren
//	format_log_1, format_log_2                    TestEventText: an Event is one line
//
// Beyond it: Goexit, own faults, abandoned children, the event hook, Run again.
//
// What does not apply to Go, or is not offered:
//
//	sup_stop_brutal_kill(_dynamic)   a goroutine cannot be killed; see Abandoned
//	child_unlink                     there are no links: a child cannot leave its supervisor
//	sup_start_ignore_*               Init has no "ignore"; leave the child out instead
//	child_adm*, sup_start_restart_*  no adding, terminating or restarting by hand
//	simple_one_for_one*, *_simple    no dynamic children; that is a worker pool
//	*_dynamic, *_scale_many_temp*    likewise
//	already_started_outside_*        no registered names
//	simple_global_supervisor         likewise
//	code_change*, significant_upgrade_*   no code change, and no hibernation
//	significant_*, auto_shutdown     not offered: a supervisor without children keeps running
//	do_not_save_start_parameters_*   children have no start parameters to save
//	count_children_memory            the list of children is fixed
//	extra_return                     a child's start returns an error and nothing else
//	faulty_application_shutdown      there are no applications
//	external_start_no_progress_log   no start from outside

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStartsInOrderStopsInReverse(t *testing.T) {
	for _, strategy := range []Strategy{OneForOne, OneForAll, RestForOne} {
		t.Run(strategy.String(), func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := start(t, Config{Strategy: strategy}, kid("a"), kid("b"), kid("c"))
				r.journaled("+a +b +c")
				r.reported("a started", "b started", "c started")
				require.Equal(t, "a running, b running, c running", r.states())
				r.stop()
				r.journaled("-c -b -a")
				r.reported("c stopped", "b stopped", "a stopped")
			})
		})
	}
}

func TestNextChildWaitsForInit(t *testing.T) {
	in(t, func(t *testing.T) {
		slow := func(int) error { time.Sleep(time.Second); return nil }
		r := start(t, Config{}, kid("a").with(slow), kid("b").with(slow), kid("c"))
		r.journaled("")
		require.Equal(t, "a starting, b waiting, c waiting", r.states())
		time.Sleep(999 * time.Millisecond)
		r.journaled("")
		time.Sleep(time.Millisecond)
		require.Equal(t, "a running, b starting, c waiting", r.states())
		time.Sleep(time.Second)
		require.Equal(t, "a running, b running, c running", r.states())
	})
}

// TestFirstInitFails: those before the failing child are stopped in reverse,
// those after it have never been started, and the cause can be reached.
func TestFirstInitFails(t *testing.T) {
	for name, tc := range map[string]struct {
		way   func() error
		cause func(t *testing.T, err error)
	}{
		"error":  {fails, func(t *testing.T, err error) { require.ErrorIs(t, err, errBoom) }},
		"goexit": {exits, func(t *testing.T, err error) { require.ErrorIs(t, err, ErrGoexit) }},
		"panic": {panics, func(t *testing.T, err error) {
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, "boom", p.Value)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				bad := kid("c").as(Temporary).with(func(int) error { return tc.way() })
				r := start(t, Config{Intensity: 10}, kid("a"), kid("b"), bad, kid("d"))
				err := r.ends()
				require.ErrorIs(t, err, ErrStart)
				require.ErrorIs(t, err, ErrInit)
				require.NotErrorIs(t, err, ErrIntensity)
				require.ErrorContains(t, err, `"c"`)
				tc.cause(t, err)
				require.Zero(t, r.Restarts())
				r.reported("a started", "b started", "c exited", "escalated", "b stopped", "a stopped")
			})
		})
	}
}

// TestRestartTypes: each way to end, for each restart type.
func TestRestartTypes(t *testing.T) {
	const restarted, finished, removed = "+a", "finished", "removed"
	for _, tc := range []struct {
		restart Restart
		way     string
		order   func() error
		want    string
	}{
		{Permanent, "return", returns, restarted},
		{Permanent, "error", fails, restarted},
		{Permanent, "panic", panics, restarted},
		{Permanent, "goexit", exits, restarted},
		{Transient, "return", returns, finished},
		{Transient, "error", fails, restarted},
		{Transient, "panic", panics, restarted},
		{Transient, "goexit", exits, restarted},
		{Temporary, "return", returns, removed},
		{Temporary, "error", fails, removed},
		{Temporary, "panic", panics, removed},
		{Temporary, "goexit", exits, removed},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%s/plain=%v", tc.restart, tc.way, plain), func(t *testing.T) {
				in(t, func(t *testing.T) {
					a := kid("a").as(tc.restart)
					a.plain = plain
					r := start(t, Config{Intensity: 1}, a)
					r.journaled("+a")
					r.seen()
					r.tell("a", tc.order)
					switch tc.want {
					case restarted:
						r.journaled("!a +a")
						r.reported("a exited", "a restarting", "a started")
						require.Equal(t, "a running", r.states())
						require.EqualValues(t, 1, r.Restarts())
					case finished:
						r.journaled("!a")
						r.reported("a exited")
						require.Equal(t, "a finished", r.states())
					case removed:
						r.journaled("!a")
						r.reported("a exited")
						require.Empty(t, r.Children())
					}
					time.Sleep(time.Hour)
					r.isRunning() // even without any child
					r.stop()
				})
			})
		}
	}
}

func TestWithoutChildrenKeepsRunning(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{})
		time.Sleep(time.Hour)
		r.isRunning()
		r.stop()
	})
}

func TestOneForOne(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{Intensity: 3}, kid("a"), kid("b"), kid("c"))
		r.journaled("+a +b +c")
		r.story(
			step{"a", fails, "!a +a"},
			step{"c", panics, "!c +c"},
			step{"b", exits, "!b +b"},
		)
		require.EqualValues(t, 3, r.Restarts())
		for _, c := range r.Children() {
			require.EqualValues(t, 1, c.Restarts)
		}
	})
}

func TestManyChildren(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 500
		actors := make([]*actor, n)
		for i := range actors {
			actors[i] = kid(fmt.Sprintf("%03d", i))
		}
		r := start(t, Config{Strategy: OneForAll, Intensity: 1}, actors...)
		var up, down strings.Builder
		for i := range n {
			fmt.Fprintf(&up, " +%03d", i)
			if i != n/2 {
				fmt.Fprintf(&down, " -%03d", i)
			}
		}
		all := strings.TrimSpace(up.String())
		others := strings.Fields(down.String())
		slices.Reverse(others)
		r.journaled(all)
		r.story(step{"250", fails, "!250 " + strings.Join(others, " ") + " " + all})
		require.EqualValues(t, 1, r.Restarts())
		r.stop()
	})
}
