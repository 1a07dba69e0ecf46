package limitfile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/limitfile"
)

// Each fault has its file, line and key.
func TestFaultNamesFileLineAndKey(t *testing.T) {
	for text, want := range map[string]string{
		"limits:\n  api: funnel 100, 10/s\n  login: at most 5/10m\n": "",
		"limits:\n  exports: in flight 10, 1m at most\n":             "",
		"limits: {}\n":                                                              "",
		"limits:\n  a: {limit: sliding 1/s}\n":                                      "",
		"limits:\n  a: {limit: sliding 1/s, warn-at: [0.5]}\n":                      "",
		"limits:\n  a: {limit: sliding 1/s, warn-at: []}\n":                         "",
		"limits:\n  a: {warn-at: [0.5]}\n":                                          "f:2: limits.a.limit: it is required, such as limit: funnel 100, 10/s",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: 0.8\n":                 "",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at:\n":                     `f:4: a: warn-at: "" is given: shares such as 0.8, 0.95 are accepted`,
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: [x]\n":                 `f:4: a: warn-at: "x" is given: shares such as 0.8, 0.95 are accepted`,
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: [.nan]\n":              `f:4: a: warn-at: ".nan" is given: shares such as`,
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: [0.8, 0.5]\n":          "f:4: a: warn-at: a share is 0.5, want a share above 0 and below 1, such as 0.8, each above the one before",
		"limits:\n  a: {limit: sliding 1/s, warn-at: [.1,.2,.3,.4,.5,.6,.7,.8,.9]}": "f:2: a: warn-at: 9 shares are given: at most 8 are accepted",
		"limits:\n  a: {limit: sliding 1/s, warnat: [0.5]}\n":                       "f:2: a: warnat: a setting is",
		"":            "f: limits is required, such as limits: {} for none",
		"# limits:\n": "f: limits is required",
		"{}\n":        "f:1: limits is required",
		"limits:\n  a: &a sliding 1/s\n  b: *a\n":                "",
		"---\nlimits:\n  a: sliding 1/s\n":                       "",
		"limits:\n  api: funnel 100\n":                           "f:2: api: ",
		"limits:\n  api: funnel 1, 1/s\n  api: at most 1/s\n":    "f:3: limits.api: this key is there twice",
		"limits:\n  a b: funnel 1, 1/s\n":                        "f:2: \"a b\": a name has 1 to 64 letters",
		"limits:\n  funnel_1,_1/s: funnel 1, 1/s\n":              "f:2: \"funnel_1,_1/s\": a name has 1 to 64 letters",
		"limits:\n  window_1-h: [1]\n":                           "f:2: window_1-h: ral: limit",
		"limit:\n  api: funnel 1, 1/s\n":                         "f:1: limit: this key is unknown here, known: limits",
		"- a\n":                                                  "f:1: a map is accepted, with the keys limits",
		"limits:\n  a: sliding 1/s\nlimits:\n  b: sliding 1/s\n": "f:3: limits: this key is there twice",
		"limits:\n  a: sliding 1/s\n---\nlimits: {}\n":           "f:3: there is a second document after ---",
		"limits:\n  a: sliding 1/s\n---\n[\n":                    "f: there is a second document after ---",
		"limits: &a\n  b: *a\n":                                  "f:1: an anchor here has an alias of itself",
		"limits: 5\n":                                            "f:1: limits: a map is accepted, from names to limits",
		"limits:\n  a: [\n":                                      "f:2: did not find expected node content",
		"limits:\n  a: \xff\n":                                   "f:2: this is not UTF-8",
		"limits:\n  a: &x funnel 1, 1/s\n  *x : funnel 2, 1/s\n": "f:3: \"funnel 1, 1/s\": a name has 1 to 64 letters",
		"a: &limits 1\n*limits : {}\n":                           "f:2: 1: this key is unknown here, known: limits",
		"limits:\n  a:\n    limit: funnel 9, 1/s\n    share: {b: 'funnel 2, 1/m', c: x}\n": "f:4: limits.a.share: a map is not accepted here: write share b: funnel 2, 1/m, a line for each",
		"limits:\n  a:\n    limit: funnel 9, 1/s\n    plan: {}\n":                          "f:4: limits.a.plan: a text is accepted, as in limit: funnel 100, 10/s or shadow: yes",
		"limits:\n  api: funnel 1, 1/x\n  api: at most 1/s\n":                              "f:2: api: ral: limit",
		// Nothing in YAML adds a line, a setting or a comment.
		"limits:\n  a: sliding 1/s\n  ' shadow': yes\n":                      `f:3: "\" shadow\"": a name has`,
		"limits:\n  'a: sliding 1/s': b\n":                                   `f:2: "\"a": a name has`,
		"limits:\n  a: 'sliding 1/s # 5'\n":                                  "f:2: limits.a: a # is not accepted",
		"limits:\n  'a #': sliding 1/s\n":                                    "f:2: limits.a #: a # is not accepted",
		"limits:\n  a: |\n    sliding 1/s\n    b: sliding 1/s\n":             "f:2: a line of UTF-8 without control characters is accepted",
		"limits:\n  a: {limit: sliding 1/s, 'per: x': y}\n":                  `f:2: a: "per: a setting is`,
		"limits:\n  a: {limit: sliding 1/s, per: {x: y}}\n":                  "f:2: limits.a.per: a text is accepted",
		"limits:\n  a: {limit: sliding 1/s, limit: sliding 2/s}\n":           "f:2: limits.a.limit: this key is there twice",
		"limits:\n  a: {limit: sliding 1/s, shadow: yes, per: me}\n":         "",
		"limits:\n  a: {limit: sliding 1/s, shadow: true}\n":                 `f:2: a: shadow: "true" is given: yes or no is accepted`,
		"limits:\n  a: {limit: sliding 1/s, plan gold: window 1/h}\n":        "",
		"limits:\n  a: {limit: sliding 1/s, penalty: '5 in 1m'}\n":           `f:2: a: penalty: "5 in 1m" is given`,
		"limits:\n  a: {limit: sliding 1/s, candidate: window 1/h}\n":        "",
		"limits:\n  a: {limit: 'funnel 9, 1/s', share b: 'window 1/h'}\n":    "f:2: a: share b: ",
		"limits:\n  a: {limit: 'funnel 9, 1/s', share b: 'funnel 2, 1/m'}\n": "",
		"limits:\n  10/h: window 1/h\n":                                      `f:2: "10/h": a name has`,
	} {
		_, err := Parse("f", []byte(text))
		if want == "" {
			assert.NoError(t, err, text)
			continue
		}
		assert.ErrorContains(t, err, want, text)
		var at *configfile.Error
		assert.ErrorAs(t, err, &at, text)
	}
}

// Promise: A limit of limits.yaml has the settings of a file of limits.
func TestYAMLHasTheSettingsOfAFileOfLimits(t *testing.T) {
	f, err := Parse("f", []byte("limits:\n  a:\n    limit: window 9/h\n    candidate: sliding 5/m\n    penalty: 5 in 1m, block 10m\n    warn-at: [0.5, 0.8]\n    plan gold: window 99/h\n"))
	require.NoError(t, err)
	want, err := limitfile.Parse("f", func(yield func(int, string) bool) {
		for i, line := range []string{"", "", "a: window 9/h", "  candidate: sliding 5/m", "  penalty: 5 in 1m, block 10m", "  warn-at: 0.5, 0.8", "  plan gold: window 99/h"} {
			if !yield(i+1, line) {
				return
			}
		}
	})
	require.NoError(t, err)
	assert.Equal(t, want, f.Limits)
	var names []string
	for _, named := range f.All() {
		names = append(names, named.Name)
	}
	assert.Equal(t, []string{"a", "a/plan/gold", Candidate("a")}, names)
	assert.Len(t, f.Limits, 1)
}

// Any text gives limits, or faults of the file.
// Promise: No text of rald's limits makes their reader panic.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"limits:\n  api: window 10/month from 20 in UTC\n  b: {limit: sliding 1/s, warn-at: [0.5, 0.8]}\n", "limits: &a\n  b: *a\n",
		"limits: {}", "limits:\n  <<: {a: sliding 1/s}\n", "limits:\n  a: [\n", "a: 1\n--- \n- \x00", "limits:\n  a: &x funnel 1, 1/s\n  *x : funnel 2, 1/s\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("f", []byte(text))
		if err != nil {
			require.Nil(t, file)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Regexp(t, "^f:", line, "each fault is a line that begins with the file")
			}
			return
		}
		for _, named := range file.All() {
			require.NotNil(t, named.Policy, "the limit %s", named.Name)
			require.NotContains(t, named.Name, "\n", "a name is a word")
		}
	})
}
