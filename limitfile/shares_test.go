package limitfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

const upstream = "upstream: funnel 100, 100/s\n reserved: funnel 60, 60/s\n share gold: funnel 30, 30/s\n ceiling gold: funnel 5, 1/s\n share silver: funnel 10, 10/s\n"

// The first line of each text is the file's first.
//
// Promise: Every fault of a limit's shares is found by file, line and name.
func TestFaultsOfSharesAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"a: window 5/h\n share b: funnel 1, 1/h":                              "f:1: a: the limit is window 5/h, want a funnel",
		"a: funnel 5, 5/h\n share b: window 1/h":                              "f:2: a: share b: the share is window 1/h, want a funnel",
		"a: funnel 5, 5/h\n share b: funnel 1, 1/h\n share c: gallon":         "f:3: a: share c: ",
		"a: funnel 5, 5/h\n share b: funnel 5, 1/h":                           "f:2: a: share b: the share is funnel 5, 1/h, want a limit within the rest of the reserve",
		"a: funnel 5, 5/h\n share b: funnel 1, 6/h":                           "f:2: a: share b: the share is ",
		"a: funnel 5, 5/h\n reserved: funnel 1, 1/h\n share b: funnel 2, 1/h": "f:3: a: share b: the share is ",
		"a: funnel 5, 5/h\n reserved: funnel 5, 1/h":                          "f:2: a: reserved: what is reserved is 5",
		"a: funnel 5, 5/h\n share b: funnel 1, 1/h\n\n ceiling c: window 1/h": "f:4: a: ceiling c: limit is window 1/h, want a funnel",
		"a: funnel 5, 5/h\n share b: funnel 1, 1/h\n plan c: funnel 1, 1/h":   `f:3: a: plan c: a limit with shares has no plans: "share c" is accepted`,
		"a: funnel 5, 5/h\n warn-at: 0.5\n share b: funnel 1, 1/h":            "f:2: a: warn-at: a limit with shares has no such setting",
		"a: funnel 5, 5/h\n share b: funnel 1, 1/h\n share b: funnel 1, 1/h":  "f:3: a: share b: line 2 has this setting",
		"a: funnel 5, 5/h\n share b c: funnel 1, 1/h":                         "f:2: a: share b c: a setting is",
		"reserved: funnel 5, 5/h":                                             `f:1: "reserved" is a setting`,
		"share b: funnel 5, 5/h":                                              `f:1: "share b" is a setting`,
	} {
		limits, err := parse("f", []byte(text))
		require.Error(t, err, text)
		assert.Nil(t, limits)
		assert.True(t, strings.HasPrefix(err.Error(), want), "%s: %v", text, err)
		fault := (*Fault)(nil)
		assert.ErrorAs(t, err, &fault)
	}
	limits, err := parse("f", []byte("b: window 1/h\n"+upstream+"c: window 1/h"))
	require.NoError(t, err)
	assert.Equal(t, "funnel 30, 30/s", limits[1].Shares[0].Policy.String())
	assert.Equal(t, "silver", limits[1].Shares[1].Name)
	assert.Equal(t, "gold", limits[1].Ceilings[0].Name)
	assert.Equal(t, "funnel 60, 60/s", limits[1].Reserved.String())
}

// Promise: `ral diff` and a reload say that a larger share waits for room, if nothing may be left of the reserve.
func TestChangesOfSharesAreCompared(t *testing.T) {
	const waits = `; it waits until other tenants leave as much, or for the next start, as the limit before has no larger "reserved"`
	bare := strings.Replace(upstream, " reserved: funnel 60, 60/s\n", "", 1)
	for _, c := range []struct{ before, after, changes, faults string }{
		{upstream, upstream, "", ""},
		{upstream, strings.Replace(upstream, "gold: funnel 30", "gold: funnel 40", 1), "upstream: share gold: funnel 30, 30/s -> funnel 40, 30/s", ""},
		{upstream, strings.Replace(upstream, "ceiling gold: funnel 5", "ceiling gold: funnel 4", 1), "upstream: ceiling gold: funnel 5, 1/s -> funnel 4, 1/s", ""},
		{upstream, strings.Replace(upstream, " share silver", " share new", 1), "upstream: share new: new, funnel 10, 10/s|upstream: share silver: funnel 10, 10/s -> none", ""},
		{upstream, strings.Replace(upstream, "d: funnel 60", "d: funnel 50", 1), "upstream: reserved: funnel 60, 60/s -> funnel 50, 60/s, at the next start", ""},
		{upstream, strings.Replace(upstream, "funnel 100,", "funnel 200,", 1), "upstream: funnel 100, 100/s -> funnel 200, 100/s, at the next start", ""},
		{bare, strings.Replace(bare, "gold: funnel 30", "gold: funnel 40", 1), "upstream: share gold: funnel 30, 30/s -> funnel 40, 30/s" + waits, ""},
		{bare, strings.Replace(bare, "gold: funnel 30, 30/s", "gold: funnel 30, 31/s", 1), "upstream: share gold: funnel 30, 30/s -> funnel 30, 31/s" + waits, ""},
		{bare, strings.Replace(bare, "gold: funnel 30, 30/s", "gold: funnel 20, 20/s", 1), "upstream: share gold: funnel 30, 30/s -> funnel 20, 20/s", ""},
		{bare, bare + " share new: funnel 1, 1/s", "upstream: share new: new, funnel 1, 1/s" + waits, ""},
		{upstream, strings.NewReplacer("d: funnel 60, 60/s", "d: funnel 90, 90/s", "gold: funnel 30, 30/s", "gold: funnel 70, 70/s").Replace(upstream),
			"upstream: reserved: funnel 60, 60/s -> funnel 90, 90/s, at the next start|upstream: share gold: funnel 30, 30/s -> funnel 70, 70/s" + waits, ""},
		{"upstream: funnel 100, 100/s", "upstream: funnel 100, 100/s\n reserved: funnel 1, 1/s", "upstream: reserved: new, funnel 1, 1/s, at the next start",
			"new:1: upstream: a limit with shares takes the place of one without, or the reverse: another name is accepted"},
	} {
		after, err := parse("new", []byte(c.after))
		require.NoError(t, err)
		changes, err := Compare(parsed(t, c.before), after)
		var texts []string
		for _, change := range changes {
			texts = append(texts, change.String())
		}
		assert.Equal(t, c.changes, strings.Join(texts, "|"))
		if c.faults == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, c.faults)
		}
	}
}

// Promise: Guarantees and ceilings follow a file of limits while a program runs.
func TestSharesFollowTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := strings.ReplaceAll(upstream, "/s", "/m")
		path := filepath.Join(t.TempDir(), "limits.conf")
		write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
		write(upstream + "other: window 5/h")
		var reports []string
		file := must.Get(Open(path, Options{OnReload: func(changes []Change, _ error) {
			for _, change := range changes {
				reports = append(reports, change.String())
			}
		}}))
		defer func() { require.NoError(t, file.Close()) }()
		shares := must.Get(Shares(file, "upstream", engine.Config{Idle: time.Minute, PackageTime: true}))
		assert.Equal(t, "upstream", shares.Stats().Name)
		assert.Equal(t, 2, shares.Stats().Tenants)
		limit := func(tenant string) int64 { return shares.Peek(tenant, 0).Limit }
		assert.EqualValues(t, 30, limit("gold"))
		require.True(t, shares.Take("gold", 30).Allowed)
		assert.False(t, shares.Take("gold", 6).Allowed, "its ceiling")
		assert.True(t, shares.Take("gold", 5).Borrowed)
		require.True(t, shares.Take("silver", 10).Allowed)

		for _, wrong := range []string{"upstream", "other", "none"} {
			_, err := Shares(file, wrong)
			require.Error(t, err, wrong)
		}
		_, err := Engine[string](file, "other")
		require.NoError(t, err)

		reload := func(text string) error {
			write(text)
			return file.Reload(t.Context())
		}
		require.NoError(t, reload(strings.NewReplacer("share gold: funnel 30, 30/m", "share gold: funnel 40, 40/m", "ceiling gold: funnel 5", "ceiling gold: funnel 9").Replace(upstream)+" share new: funnel 10, 1/m\nother: window 6/h"))
		assert.EqualValues(t, 40, limit("gold"))
		assert.EqualValues(t, 10, limit("new"))
		assert.Zero(t, shares.Stats().Unreserved)

		// Silver's larger guarantee comes out of what gold owes for a while.
		grown := strings.NewReplacer("share gold: funnel 30, 30/m", "share gold: funnel 20, 20/m", "share silver: funnel 10, 10/m", "share silver: funnel 30, 30/m").Replace(upstream) + "other: window 6/h"
		require.True(t, shares.Take("gold", 40).Allowed || shares.Take("gold", 9).Allowed)
		reports = nil
		err = reload(grown)
		require.ErrorContains(t, err, "upstream: share silver: limit is funnel 30, 30/m, want a limit within the rest of the reserve: a capacity of at most 10")
		require.ErrorIs(t, file.Health(), err)
		assert.Equal(t, "upstream: share gold: funnel 40, 40/m -> funnel 20, 20/m|upstream: ceiling gold: funnel 9, 1/m -> funnel 5, 1/m|upstream: share new: funnel 10, 1/m -> none",
			strings.Join(reports, "|"), "silver's share has not changed")
		reports = nil
		assert.EqualValues(t, 20, limit("gold"))
		assert.EqualValues(t, 10, limit("silver"))
		time.Sleep(30 * time.Minute)
		require.NoError(t, file.Health(), "it was tried again")
		assert.Equal(t, "upstream: share silver: funnel 10, 10/m -> funnel 30, 30/m", strings.Join(reports, "|"))
		assert.EqualValues(t, 30, limit("silver"))
		assert.Zero(t, shares.Peek("new", 1).Limit-40, "it only borrows now")

		require.ErrorContains(t, reload("other: window 6/h"), "upstream: a limiter of this name is in use")
		require.ErrorContains(t, reload("upstream: funnel 100, 100/s\nother: window 6/h"), "a limit with shares")
		require.ErrorContains(t, reload(grown+"\n share b: funnel 1, 1/h"), "other")
		assert.EqualValues(t, 30, limit("silver"))
	})
}

func TestLimitWithSharesHasNoEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.conf")
	require.NoError(t, os.WriteFile(path, []byte(upstream), 0o600))
	file := must.Get(Open(path, Options{}))
	defer func() { require.NoError(t, file.Close()) }()
	_, err := Engine[string](file, "upstream")
	require.ErrorContains(t, err, "upstream: tenants share it")
	shares := must.Get(Shares(file, "upstream"))
	require.NoError(t, file.Close())
	assert.False(t, shares.Choke("gold"), "closed with the file")
}

func TestSharesInFlightFollowTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.conf")
		write := func(guarantee string) {
			text := "up: in flight 10, 1m at most\n  reserved: in flight 6, 1m at most\n  share a: " + guarantee + "\n  share b: in flight 1, 1m at most\n"
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		write("in flight 3, 1m at most")
		file := must.Get(Open(path, Options{}))
		defer func() { require.NoError(t, file.Close()) }()
		shares := must.Get(Shares(file, "up", engine.Config{Idle: time.Minute}))
		for _, limit := range []int64{5, 2, 4} {
			write(fmt.Sprintf("in flight %d, 1m at most", limit))
			require.NoError(t, file.Reload(t.Context()))
			assert.Equal(t, limit, shares.Peek("a", 0).Limit)
		}
		before := file.Limits()
		for text, ofOtherKind := range map[string]string{
			"up: in flight 10, 1m at most\n  share a: in flight 3, 1m at most": "up: funnel 10, 10/s\n  share a: funnel 3, 3/s",
			"up: funnel 10, 10/s\n  share a: funnel 3, 3/s":                    "up: in flight 10, 1m at most\n  share a: in flight 3, 1m at most",
		} {
			_, err := Compare(must.Get(parse("a", []byte(text))), must.Get(parse("b", []byte(ofOtherKind))))
			require.Error(t, err, "Compare accepted that limit and shares change from %q to %q, want a fault for the other kind", text, ofOtherKind)
		}
		assert.Equal(t, before, file.Limits())
	})
}
