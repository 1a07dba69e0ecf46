package configfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// With the line, even if the parser omits it.
func TestUnreadableFileIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n  b: [\n":    "f:2: did not find expected node content",
		"a: b: c\n":       "f:1: mapping values are not allowed in this context",
		"a: 1\nb: \xff\n": "f:2: this is not UTF-8, which alone is accepted",
		"a: 1\nb: *c\n":   "f:2: unknown anchor 'c' referenced",
		"a: 1\nb: \x01\n": "f:2: control characters are not allowed",
		"a: \"\\z\"\n":    "f:1: found unknown escape character",
	} {
		var n yaml.Node
		err := yaml.Unmarshal([]byte(text), &n)
		require.Error(t, err, text)
		assert.EqualError(t, unreadable("f", []byte(text), err.Error()), want)
	}
	assert.EqualError(t, unreadable("f", nil, "yaml: something else"), "f: something else")
}
