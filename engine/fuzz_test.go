package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/policy"
)

// FuzzConfig checks that New refuses a configuration with an error for the first bad field and its
// value, or that the engine limits, and closes.
func FuzzConfig(f *testing.F) {
	f.Add(int64(0), 0, 0, int64(0), 0, 0, 0, 0, int64(0))
	f.Add(int64(-1), -1, -1, int64(-1), -1, -1, -1, -1, int64(-1))
	f.Add(int64(math.MaxInt64), math.MaxInt, 2, int64(math.MaxInt64), 1, 1<<12, math.MaxInt, math.MaxInt, int64(math.MaxInt64))
	f.Add(int64(1), 1, 3, int64(1), 2, 1<<20+1, 1, 1, int64(1))
	f.Fuzz(func(t *testing.T, idle int64, maxKeys, full int, openTimeout int64, unavailable, depth, waiting, restarts int, period int64) {
		config := Config{
			Policy: funnel(1, 1, time.Hour), Idle: time.Duration(idle), MaxKeys: maxKeys, WhenFull: WhenFull(full),
			OpenTimeout:     time.Duration(openTimeout),
			WhenUnavailable: WhenUnavailable(unavailable), QueueDepth: depth, MaxWaiting: waiting,
			Restarts: restarts, RestartPeriod: time.Duration(period),
		}
		want, value := "", any(nil)
		for _, c := range []struct {
			bad   bool
			field string
			value any
		}{
			{idle < 0, "Idle", config.Idle},
			{maxKeys < 0, "MaxKeys", maxKeys},
			{full < 0 || full > 2, "WhenFull", full},
			{openTimeout < 0, "OpenTimeout", config.OpenTimeout},
			{unavailable < 0 || unavailable > 1, "WhenUnavailable", unavailable},
			{depth < 0 || depth > 1<<20, "QueueDepth", depth},
			{waiting < 0, "MaxWaiting", waiting},
			{restarts < 0, "Restarts", restarts},
			{period < 0, "RestartPeriod", config.RestartPeriod},
		} {
			if c.bad {
				want, value = c.field, c.value
				break
			}
		}
		if want == "" && depth > 1<<12 {
			// The memory of a queue is taken at once.
			return
		}
		e, err := New[string](config)
		if want != "" {
			var refused *policy.FieldError
			if e != nil || !errors.As(err, &refused) || refused.Field != want || refused.Value != value || refused.Want == "" {
				t.Fatalf("%v; want %s refused", err, want)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		first, again := e.Choke("key"), e.Choke("key")
		if !first || again {
			t.Errorf("the first call passes: %v, the second: %v", first, again)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzVerbs calls the verbs in any order with any amounts and patience, on a few keys that come,
// wait, and go. Each decision keeps to the laws, looks are not counted, and map and index agree at
// the end.
//
// Promise: No order of verbs panics or hangs; each call counts once.
func FuzzVerbs(f *testing.F) {
	f.Add(byte(0), []byte{0, 8, 1, 3, 16, 200, 9, 1, 24, 5, 10, 0, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 7})
	f.Add(byte(4), []byte{2, 250, 250, 10, 130, 66, 34, 1, 0, 0, 9, 9, 17, 17, 25, 25, 33, 33})
	f.Add(byte(9), []byte{2, 1, 1, 10, 1, 1, 18, 1, 4, 0, 5, 128, 11, 0, 3, 255, 12, 1, 13, 2, 6, 6, 6})
	f.Add(byte(6), []byte{5, 255, 255, 13, 255, 255, 3, 128, 4, 1, 4, 3, 8, 8, 7, 127})
	f.Fuzz(func(t *testing.T, kind byte, steps []byte) {
		synctest.Test(t, func(t *testing.T) {
			limits := limitstest.Families()[int(kind)%7]
			e := open[byte](t, Config{
				Policy: limits[0], MaxKeys: 3, Idle: time.Minute,
				WhenFull: WhenFull(kind / 14 % 3), OpenTimeout: time.Millisecond, MaxWaiting: 2,
			})
			v := verbs{t: t, e: e, limits: [2]policy.Policy(limits), steps: steps[:min(len(steps), 256)]}
			for len(v.steps) > 0 {
				v.step()
			}
			s := e.Stats()
			if s.Admitted+s.Refused != v.counted {
				t.Errorf("%d calls were admitted and %d refused, of %d", s.Admitted, s.Refused, v.counted)
			}
			if s.Keys > 3 || s.Admitted+s.Refused < s.Unavailable+s.Full {
				t.Errorf("%+v", s)
			}
			synctest.Wait()
		})
	})
}

type verbs struct {
	t       *testing.T
	e       *Engine[byte]
	limits  [2]policy.Policy
	steps   []byte
	held    []Reservation[byte]
	counted uint64
}

func (v *verbs) byte() (b byte) {
	if len(v.steps) > 0 {
		b, v.steps = v.steps[0], v.steps[1:]
	}
	return b
}

// amount is a small number, or of any size.
func (v *verbs) amount() int64 {
	b := int8(v.byte())
	switch {
	case b == math.MinInt8:
		return math.MinInt64
	case b == math.MaxInt8:
		return math.MaxInt64
	case b > 64:
		return int64(b) << (b % 56)
	}
	return int64(b)
}

func (v *verbs) step() {
	op := v.byte()
	key := op >> 4 % 5
	switch op % 14 {
	case 0:
		v.counted++
		v.e.Choke(key)
	case 1:
		n := v.amount()
		v.count(n)
		v.lawful(n, v.e.Take(key, n))
	case 2:
		n, patience := v.amount(), time.Duration(v.amount())
		v.count(n)
		r := v.e.Reserve(key, n, patience)
		v.lawful(n, r.Decision)
		v.held = append(v.held, r)
	case 3:
		v.e.Refund(key, v.amount())
	case 4:
		if len(v.held) > 0 {
			v.held[int(v.byte())%len(v.held)].Cancel()
		}
	case 5:
		n := v.amount()
		v.count(n)
		v.lawful(n, v.e.TakeWith(v.limits[1], key, n))
	case 6:
		v.e.Reset(key)
	// Up to four minutes pass.
	case 7:
		time.Sleep(time.Duration(v.byte()) * time.Second)
	case 8:
		time.Sleep(time.Duration(v.byte()) * 7 * time.Millisecond)
	case 9:
		if d := v.e.Peek(key, 0); !d.Allowed {
			v.t.Errorf("looking is allowed: %+v", d)
		}
	case 10:
		n := v.amount()
		ctx, cancel := context.WithTimeout(v.t.Context(), time.Duration(v.byte())*time.Millisecond)
		defer cancel()
		v.count(n)
		begin := time.Now()
		err := v.e.Wait(ctx, key, n)
		if deadline, _ := ctx.Deadline(); time.Now().After(deadline.Add(time.Millisecond)) {
			v.t.Errorf("Wait took %v: %v", time.Since(begin), err)
		}
		if n == 0 && err != nil && ctx.Err() == nil {
			v.t.Errorf("n == 0 never waits: %v", err)
		}
	case 11:
		n := v.amount()
		other := v.byte() % 5
		out := TakeAll(v.e.Claim(key, n), v.e.Claim(other, n), v.e.Claim(key, n))
		if out.Allowed != (out.RetryAfter == 0) || len(out.Decisions) != 3 {
			v.t.Errorf("TakeAll(%d): %+v", n, out)
		}
		v.countAll(n, key == other, out)
	case 12:
		if err := v.e.SetPolicy(v.limits[1]); err != nil {
			v.t.Error(err)
		}
		v.limits[0], v.limits[1] = v.limits[1], v.limits[0]
	case 13:
		seen := map[byte]bool{}
		for key, d := range v.e.All() {
			if !d.Allowed || seen[key] {
				v.t.Errorf("key %d is seen twice, or not allowed to be looked at: %+v", key, d)
			}
			seen[key] = true
		}
	}
}

func (v *verbs) count(n int64) {
	if n != 0 {
		v.counted++
	}
}

// countAll counts a TakeAll of two keys, or of one: once for each that allowed it, or that refused.
func (v *verbs) countAll(n int64, one bool, out Outcome) {
	decisions := out.Decisions[:2]
	if one {
		decisions = decisions[:1]
	}
	for _, d := range decisions {
		if n != 0 && d.Allowed == out.Allowed {
			v.counted++
		}
	}
}

// lawful checks a decision by the laws of all decisions.
func (v *verbs) lawful(n int64, d policy.Decision) {
	wrong := ""
	switch {
	case d.Limit < 0 || d.Remaining < 0 || d.Remaining > d.Limit:
		wrong = "what remains is out of range"
	case d.Wait < 0 || d.RetryAfter < 0 || d.ResetAfter < 0:
		wrong = "a delay is below 0"
	case d.Allowed && d.RetryAfter != 0 || !d.Allowed && d.RetryAfter == 0:
		wrong = "RetryAfter belongs to refused calls, and to all of them"
	case (n < 0 || n > d.Limit) && (d.Allowed || d.RetryAfter != policy.Never):
		wrong = "it can never succeed"
	case n == 0 && !d.Allowed && d.Limit > 0:
		wrong = "looking is allowed"
	}
	if wrong != "" {
		v.t.Error(fmt.Sprintf("n = %d: %+v", n, d), wrong)
	}
}
