package answer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// structuredCase is a test of an item or a list in the corpus of the HTTP working group at
// https://github.com/httpwg/structured-field-tests, as of 2026-06-09, except those of 2 kB and more.
type structuredCase struct {
	// Raw has the lines.
	Raw     []string
	List    bool
	Fails   bool
	MayFail bool `json:"may_fail"`
	// Text is the text of an item that is a string or a token.
	Text *string
	// Integer is the number of an item that is an integer.
	Integer *int64
	Names   []*string
}

// Promise: Structured fields parse as in RFC 9651's corpus.
func TestStructuredFieldsParseAsInTheCorpus(t *testing.T) {
	text, err := os.ReadFile("testdata/structured/cases.json")
	require.NoError(t, err)
	var cases []structuredCase
	require.NoError(t, json.Unmarshal(text, &cases))
	differ := 0
	for _, c := range cases {
		if problem := c.problem(); problem != "" {
			differ++
			t.Logf("%s: %q", problem, c.Raw)
		}
	}
	assert.Zero(t, differ)
	assert.Equal(t, 1155, len(cases))
}

// problem says how the parser differs from the corpus. An item is tried as a parameter of a
// string. A RateLimit list has no other members than strings and tokens.
func (c *structuredCase) problem() string {
	var items [300]item
	if c.List {
		n := parseList(items[:], c.Raw)
		switch others := c.others(); {
		case c.MayFail && n == 0:
		case (n > 0) != (!c.Fails && !others && len(c.Names) > 0):
			return "accepted or refused"
		default:
			for i := range n {
				if items[i].name != *c.Names[i] {
					return "another name"
				}
			}
		}
		return ""
	}
	raw := strings.Trim(strings.Join(c.Raw, ", "), " ")
	n := parseList(items[:], []string{`"a";r=` + raw + `;t=1`})
	switch {
	case c.MayFail && n == 0:
	case (n == 1) == c.Fails:
		return "accepted or refused"
	case c.Integer != nil && *c.Integer >= 0 && items[0].r != *c.Integer:
		return "another integer"
	case c.Text != nil:
		parseList(items[:], []string{`"a";qu=` + raw})
		if items[0].unit != *c.Text {
			return "another text"
		}
	}
	return ""
}

func (c *structuredCase) others() bool {
	for _, name := range c.Names {
		if name == nil {
			return true
		}
	}
	return false
}
