package limitfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

const example = `# limits.conf
per-user: funnel 100, 10/s
    per: user                       # for people
    plan gold: funnel 1000, 100/s
	plan  free : funnel 10, 1/s
    candidate: sliding 500/m
    warn-at: 0.8, 0.95
    penalty: 5 in 1m, block 10m, at most 1d, forget 2d

login: at most 5/10m# no comment, and
`

func parsed(t testing.TB, text string) []Limit {
	t.Helper()
	all, err := parse("limits.conf", []byte(text))
	require.NoError(t, err)
	return all
}

func TestEachSettingIsRead(t *testing.T) {
	text := strings.Replace(example, "# no comment, and", "\r\n  shadow: yes", 1)
	all := parsed(t, "\ufeff"+text)
	require.Len(t, all, 2)
	l := all[0]
	var plans []string
	for _, plan := range l.Plans {
		plans = append(plans, plan.Name+" "+plan.Policy.String())
	}
	assert.Equal(t, "per-user", l.Name)
	assert.Equal(t, "funnel 100, 10/s", l.Policy.String())
	assert.Equal(t, "user", l.Per)
	assert.Equal(t, []string{"gold funnel 1000, 100/s", "free funnel 10, 1/s"}, plans)
	assert.Equal(t, "sliding 500/m", l.Candidate.String())
	assert.Equal(t, []float64{0.8, 0.95}, l.WarnAt)
	assert.Equal(t, engine.Penalty{Refusals: 5, Within: time.Minute, For: 10 * time.Minute, Max: 24 * time.Hour, Forget: 48 * time.Hour}, l.Penalty)
	assert.False(t, l.Shadow)
	assert.True(t, all[1].Shadow)
	assert.Equal(t, "at most 5/10m", all[1].Policy.String())
	assert.Equal(t, "in flight 10, 1m at most", parsed(t, "jobs: in flight 10, 1m at most")[0].Policy.String())
}

// Promise: A file of limits has all its faults in one list, by file, line and key.
func TestAllFaultsAreInOneList(t *testing.T) {
	_, err := parse("limits.conf", []byte(example+`
  shadow: perhaps
login: sliding 5/m
    candidate: sliding 5/x
    candidate: sliding 5/m
    colour: red
    plan a b: sliding 5/m
    penalty: 5 in 1m
    warn-at: 0.9, 0.8
    no colon
candidate: sliding 5/m
sliding_5/m: sliding 5/m
a b: window 5/h
window 5/h
bad: `+"\x00"))
	var places []string
	for _, f := range faultsOf(t, err) {
		places = append(places, fmt.Sprintf("%d %s", f.Line, f.Key))
		assert.Equal(t, "limits.conf", f.File)
	}
	assert.Equal(t, []string{
		"10 login", "12 login: shadow", "13 login", "14 login: candidate", "15 login: candidate", "16 login: colour",
		"17 login: plan a b", "18 login: penalty", "19 login: warn-at", "20 login", "21 ", `22 "sliding_5/m"`, `23 "a b"`, "24 ", "25 ",
	}, places, "%v", err)
	for _, part := range []string{
		"limits.conf:13: login: line 10 has a limit of this name", "limits.conf:14: login: candidate: ral: limit", `want a unit of time`,
		"limits.conf:12: login: shadow: \"perhaps\" is given: yes or no is accepted", "indent it below its limit",
	} {
		assert.ErrorContains(t, err, part)
	}
	var text *policy.ParseError
	assert.ErrorAs(t, err, &text, "a fault wraps its reason")
}

// faultsOf returns the faults that an error joins.
func faultsOf(t *testing.T, err error) (faults []*Fault) {
	t.Helper()
	list, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%v", err)
	for _, err := range list.Unwrap() {
		fault, ok := err.(*Fault)
		require.True(t, ok, "%v", err)
		faults = append(faults, fault)
	}
	return faults
}

func TestSettingsNeedALimitAbove(t *testing.T) {
	_, err := parse("f", []byte("\n  shadow: yes\n"))
	assert.ErrorContains(t, err, "f:2: an indented line is a setting of the limit above, and there is none")
}

func TestPenaltiesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"0 in 1m, block 1m":              "the number of refusals is 0, want 1 to 1024",
		"5 in 1m, block 10m, at most 5m": `the time after "at most" is 5m, want that after "block", which is 10m, to 32768 times as long, at most 35040h`,
		"5 in 1h, block 1m, forget 1m":   `the time after "forget" is 1m, want that after "in"`,
		"5 in 1m":                        "is given",
		"5 in 1m, block 1m, block 2m":    "is given",
		"5 in 1m aligned, block 1m":      "is given",
		"5 in day in UTC, block 1m":      "is given",
		"5 in m, block 1m":               "is given",
		"5 in 1m, block 1m, flee 1m":     "is given",
		"99999999999999 in 1m, block 1m": "is given",
		"":                               "is given",
		"5 in , block 1m":                "is given",
	} {
		_, err := parse("f", []byte("a: sliding 5/m\n penalty: "+text))
		assert.ErrorContains(t, err, want, text)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, err := parse("f", bytes.Repeat([]byte("x\n"), 1<<20))
	faults := faultsOf(t, err)
	assert.Len(t, faults, maxFaults+1)
	assert.ErrorContains(t, faults[maxFaults], "there may be more")

	// Each plan of a limit with shares is a fault.
	text := linesOf(2*maxFaults, "a: funnel 10, 1/s\n share gold: funnel 1, 1/m\n", " plan p%d: funnel 1, 1/s\n")
	_, err = parse("f", append(text, strings.Repeat("x\n", 2*maxFaults)...))
	assert.Equal(t, maxFaults+1, len(faultsOf(t, err)), "the faults of plans and lines") //nolint:testifylint // Len would print them
	_, err = parse("f", text)
	assert.Equal(t, maxFaults+1, len(faultsOf(t, err)), "the faults of plans") //nolint:testifylint // as above
}

// linesOf returns a file with n lines of a format, which takes the number of the line.
func linesOf(n int, head, format string) (text []byte) {
	text = []byte(head)
	for i := range n {
		text = fmt.Appendf(text, format, i)
	}
	return text
}

// The time to read and to compare a file is in proportion to its lines, whatever they say.
// Promise: A line of a file of limits takes at most 4 times as long to read as a line with a limit, also among thousands of its kind.
func TestReadingTakesTimeByLine(t *testing.T) {
	const lines = 64_000 / testenv.RaceSlowdown
	read := func(file []byte) time.Duration {
		begin := time.Now()
		all, _ := parse("f", file)
		_, err := Compare(all, all)
		took := time.Since(begin) // wall: a ratio within the run, of the shortest of ten times
		require.NoError(t, err)
		return took
	}
	plain := linesOf(lines, "", "limit-%d: funnel 100, 10/s\n")
	for name, file := range map[string][]byte{
		"plans":             linesOf(lines, "a: window 5/h\n", " plan p%d: window 5/h\n"),
		"shares, ceilings":  linesOf(lines/2, "a: funnel 1M, 1M/h\n", " share t%[1]d: funnel 1, 1/h\n ceiling t%[1]d: funnel 100, 100/h\n"),
		"ceilings of plans": linesOf(lines/2, "a: funnel 1M, 1M/h\n", " ceiling t%[1]d: funnel 1, 1/h\n plan p%[1]d: window 5/h\n"),
		"a name twice":      linesOf(lines, "a: window 5/h\n", "a: window %d/h\n"),
	} {
		shortest, plainly := read(file), read(plain)
		for range 9 {
			if shortest > 4*plainly {
				shortest, plainly = min(shortest, read(file)), min(plainly, read(plain))
			}
		}
		assert.LessOrEqual(t, shortest, 4*plainly, "%s: the time for as many lines as take %v with limits", name, plainly)
	}
}

// Promise: No text of a file of limits makes its reader panic.
func FuzzParse(f *testing.F) {
	f.Add(example)
	for _, text := range []string{"", "a:", ":", " :", "a: sliding 5/m\n plan :\n plan x:\n penalty: ,,\n warn-at: NaN", "\ufeff#", "a: b: c", "a: sliding 5/m\n penalty: 1 in 1h, block ",
		"a: funnel 9, 9/s\n reserved: funnel 5, 5/s\n share b: funnel 4, 4/s\n ceiling b: funnel 8, 8/s\n plan c: window 1/month from 31 in UTC"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse("f", []byte(text))
		if err != nil {
			require.Nil(t, all)
			for _, fault := range faultsOf(t, err) {
				require.LessOrEqual(t, fault.Line, strings.Count(text, "\n")+1)
				require.NotContains(t, fault.Error(), "\n", "a fault is a line")
				require.Less(t, len(fault.Error()), 3000, "a fault is short, whatever the line")
			}
			return
		}
		for _, l := range all {
			require.NotNil(t, l.Policy)
		}
		changes, err := Compare(all, all)
		require.Empty(t, changes)
		require.NoError(t, err)
	})
}

func BenchmarkParse(b *testing.B) {
	var text bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&text, "limit-%d: funnel 100, 10/s\n    per: user\n", i)
	}
	b.Run("limits=10000", func(b *testing.B) {
		for b.Loop() {
			if _, err := parse("f", text.Bytes()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Adapters have faults of their own.
func TestFaultHasThePlaceOfItsSetting(t *testing.T) {
	all := parsed(t, "a: window 1/h\n warn-at: 0.5\n plan b: window 2/h\n per: user\n")
	assert.EqualError(t, all[0].Fault("plan b", errors.New("no plans")), "limits.conf:3: a: plan b: no plans")
	assert.Equal(t, 1, all[0].Fault("", nil).Line)
}
