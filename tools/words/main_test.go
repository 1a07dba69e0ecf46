package main

import (
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Also code, items of a list, quoted ends and dots within words.
func TestSentencesAreCounted(t *testing.T) {
	got := sentences("Package a is a room. It holds\none (v1.2) \"thing.\" And\n\n\tcode(that, is, none)\n\n" +
		"Then a list:\n  - the first\n    in two lines\n  - the second\n")
	var words []int
	for _, s := range got {
		words = append(words, s.words)
	}
	assert.Equal(t, []int{5, 5, 1, 3, 2, 2}, words, "%q", got)
}

func TestWordsAreCounted(t *testing.T) {
	var longs int
	c := countOf("What a key, whose word is that of\nanother one, holds. "+
		"One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "+
		"eighteen nineteen twenty 21 22 23 24 25 26.", func(sentence) { longs++ })
	assert.Equal(t, count{words: 37, sentences: 2, long: 1, kinds: [6]int{1, 1, 1, 2, 0, 0}}, c)
	assert.Equal(t, 1, longs)
	assert.InDelta(t, 18.5, c.figures()[6], 1e-9)
	assert.InDelta(t, 50, c.figures()[7], 1e-9)
	c.lineEnds = 4000
	assert.EqualError(t, c.fault(), "what is 27, at most 1.5 is accepted\nthat of is 27, at most 0.3 is accepted\n"+
		"of which is 27, at most 1.5 is accepted\none is 54.1, at most 4 is accepted\n"+
		"mean is 18.5, at most 14 is accepted\n% long is 50, at most 4 is accepted\n"+
		"at line ends is 4000, at most 700 is accepted")
	c = countOf("A word is held. It, its key and they are short.", func(sentence) {})
	assert.Equal(t, [6]int{4: 1, 5: 1}, c.kinds)
}

func TestCommentsAtLineEndsAreToldApart(t *testing.T) {
	folder := t.TempDir()
	source := "// Package a is a room.\npackage a\n\nvar x = 1 // a fragment\n\n\t// A comment above.\nvar y = 2\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.go"), []byte(source), 0o600))
	var ends []string
	require.NoError(t, comments(folder, func(_ token.Position, text string, atLineEnd bool) {
		if atLineEnd {
			ends = append(ends, text)
		}
	}))
	assert.Equal(t, []string{"a fragment\n"}, ends)
}
