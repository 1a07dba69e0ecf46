package limitfile

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
)

// Each fault has its file, line and key.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"limits:\n  api: funnel 100, 10/s\n  login: at most 5/10m\n": "",
		"limits:\n  exports: in flight 10, 1m at most\n":             "",
		"limits: {}\n":                                                              "",
		"limits:\n  a: {limit: sliding 1/s}\n":                                      "",
		"limits:\n  a: {limit: sliding 1/s, warn-at: [0.5]}\n":                      "",
		"limits:\n  a: {limit: sliding 1/s, warn-at: []}\n":                         "",
		"limits:\n  a: {warn-at: [0.5]}\n":                                          "f:2: limits.a.limit: the text of a limit is accepted",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: 0.8\n":                 "f:4: limits.a.warn-at: a list of shares is accepted, such as [0.8, 0.95]",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at:\n":                     "f:4: limits.a.warn-at: a list of shares is accepted",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: [x]\n":                 "f:4: limits.a.warn-at: a list of shares is accepted",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: [.nan]\n":              "f:4: limits.a.warn-at: warn-at[0] is NaN",
		"limits:\n  a:\n    limit: sliding 1/s\n    warn-at: [0.8, 0.5]\n":          "f:4: limits.a.warn-at: warn-at[1] is 0.5: a share above 0 and below 1, such as 0.8, each above the one before is accepted",
		"limits:\n  a: {limit: sliding 1/s, warn-at: [.1,.2,.3,.4,.5,.6,.7,.8,.9]}": "f:2: limits.a.warn-at: warn-at is 9: at most 8 shares is accepted",
		"limits:\n  a: {limit: sliding 1/s, warnat: [0.5]}\n":                       "f:2: limits.a.warnat: the keys here are limit, warn-at",
		"":            "f: limits is required, such as limits: {} for none",
		"# limits:\n": "f: limits is required",
		"{}\n":        "f:1: limits is required",
		"limits:\n  a: &a sliding 1/s\n  b: *a\n":                "",
		"---\nlimits:\n  a: sliding 1/s\n":                       "",
		"limits:\n  api: funnel 100\n":                           "f:2: limits.api: ",
		"limits:\n  api: funnel 1, 1/s\n  api: at most 1/s\n":    "f:3: limits.api: this key is there twice",
		"limits:\n  a b: funnel 1, 1/s\n":                        "f:2: limits.a b: a name has 1 to 64 letters",
		"limits:\n  funnel_1,_1/s: funnel 1, 1/s\n":              "f:2: limits.funnel_1,_1/s: a name has 1 to 64 letters",
		"limits:\n  window_1-h: [1]\n":                           "f:2: limits.window_1-h: the text of a limit is accepted",
		"limit:\n  api: funnel 1, 1/s\n":                         "f:1: limit: the keys here are limits",
		"- a\n":                                                  "f:1: a map is accepted, with the keys limits",
		"limits:\n  a: sliding 1/s\nlimits:\n  b: sliding 1/s\n": "f:3: limits: this key is there twice",
		"limits:\n  a: sliding 1/s\n---\nlimits: {}\n":           "f:3: there is a second document after ---",
		"limits:\n  a: sliding 1/s\n---\n[\n":                    "f: there is a second document after ---",
		"limits: &a\n  b: *a\n":                                  "f:1: an anchor here has an alias of itself",
		"limits: 5\n":                                            "f:1: limits: a map is accepted, from names to limits",
		"limits:\n  a: [\n":                                      "f:2: did not find expected node content",
		"limits:\n  a: \xff\n":                                   "f:2: this is not UTF-8",
		"limits:\n  a: &x funnel 1, 1/s\n  *x : funnel 2, 1/s\n": "f:3: limits.funnel 1, 1/s: a name has 1 to 64 letters",
		"a: &limits 1\n*limits : {}\n":                           "f:2: 1: the keys here are limits",
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
