package limitfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first line of each text is the file's second, and so on.
//
// Promise: A changed file of limits is reported limit by limit, and another kind or period under a name is a fault.
func TestChangesAreCompared(t *testing.T) {
	const user = "per-user: window 100/h\n"
	for _, c := range []struct{ before, after, changes, faults string }{
		{user, user + " per: somebody\n", "", ""},
		{user, "per-user: window 200/h", "per-user: window 100/h -> window 200/h", ""},
		{user, "per-user: window 20/h", "per-user: window 100/h -> window 20/h; calls for 21 to 100 units are refused now", ""},
		{user, user + "b: sliding 5/m", "b: new, sliding 5/m", ""},
		{user + "b: sliding 5/m\n shadow: yes", user, "b: sliding 5/m -> none; a program that uses it refuses the file", ""},
		{user + " shadow: yes", user + " shadow: no", "per-user: shadow: yes -> none", ""},
		{user + " penalty: 5 in 1m, block 1h", user + " penalty:  5  in 1m, block 2h", "per-user: penalty: 5 in 1m, block 1h -> 5 in 1m, block 2h, at the next start", ""},
		{user, user + " plan gold: window 5/d\n candidate: sliding 5/m\n shadow: yes\n warn-at: 0.5\n penalty: 5 in 1m, block 1h",
			"per-user: plan gold: new, window 5/d|per-user: candidate: new, sliding 5/m|per-user: shadow: new, yes|" +
				"per-user: warn-at: new, 0.5, at the next start|per-user: penalty: new, 5 in 1m, block 1h, at the next start", ""},
		{user + " plan gold: window 5/d\n warn-at: 0.5", user, "per-user: plan gold: window 5/d -> none|per-user: warn-at: 0.5 -> none, at the next start", ""},
		{user, "\nper-user: sliding 100/h", "per-user: window 100/h -> sliding 100/h",
			`new:2: per-user: keys count under "window 100/h", of another family than "sliding 100/h": a limit of the same kind and period is accepted, or another name`},
		{user, "per-user: window 100/d", "per-user: window 100/h -> window 100/d",
			`new:1: per-user: keys count under "window 100/h", of another family than "window 100/d": a limit of the same kind and period is accepted, or another name`},
		{user + " candidate: sliding 5/m", user + " candidate: window 5/m", "per-user: candidate: sliding 5/m -> window 5/m", ""},
		{user + " plan gold: window 5/d", user + " plan gold: window 5/h", "per-user: plan gold: window 5/d -> window 5/h",
			`new:2: per-user: plan gold: keys count under "window 5/d", of another family than "window 5/h": a limit of the same kind and period is accepted, or another name`},
		{"m: window 1000000/h", "m: window 1000001/h", "m: window 1000000/h -> window 1000001/h", ""},
		{"m: window 1000000/h", "m: window 1000001/d", "m: window 1000000/h -> window 1000001/d",
			`new:1: m: keys count under "window 1000000/h", of another family than "window 1000001/d": a limit of the same kind and period is accepted, or another name`},
		{"m: window 5/month in UTC", "m: window 6/month in UTC", "m: window 5/month in UTC -> window 6/month in UTC", ""},
		{"m: window 5/month in UTC", "m: window 5/month from 20 in UTC", "m: window 5/month in UTC -> window 5/month from 20 in UTC", ""},
		{"m: in flight 5, 1m at most", "m: in flight 6, 1m at most", "m: in flight 5, 1m at most -> in flight 6, 1m at most", ""},
	} {
		after, err := parse("new", []byte(c.after))
		require.NoError(t, err)
		changes, err := Compare(parsed(t, c.before), after)
		text := ""
		for i, change := range changes {
			if i > 0 {
				text += "|"
			}
			text += change.String()
		}
		assert.Equal(t, c.changes, text)
		if c.faults == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, c.faults)
			var fault *Fault
			assert.ErrorAs(t, err, &fault)
		}
	}
	assert.Equal(t, "a: x -> y, 1 key at its limit", Change{Name: "a", From: "x", To: "y", KeysAtLimit: 1}.String())
	assert.Equal(t, "a: x -> y, 3 keys at their limit", Change{Name: "a", From: "x", To: "y", KeysAtLimit: 3}.String())
}
