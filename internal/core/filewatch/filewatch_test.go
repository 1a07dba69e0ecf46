package filewatch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The file is written again while it is read.
func TestFileThatChangesWhileReadIsNotTaken(t *testing.T) {
	text, puts := "old", []string{}
	w := Watch[string]{
		Known: "old", Last: "old",
		Stamp: func() string { return text },
		Put:   func(read string, _ error) { puts = append(puts, read) },
		Read: func() (string, error) {
			read := text
			text = strings.Replace(text, "half", "whole", 1)
			return read, nil
		},
	}
	text = "half"
	for range 6 {
		w.Look()
	}
	assert.Equal(t, []string{"whole"}, puts)
}

// A forced look waits like any other until two looks agree.
func TestForcedLookTakesNoHalfFile(t *testing.T) {
	text, puts := "old", []string{}
	w := Watch[string]{
		Known: "old", Last: "old",
		Stamp: func() string { return text },
		Put:   func(read string, _ error) { puts = append(puts, read) },
		Read:  func() (string, error) { return text, nil },
	}
	w.Force()
	for _, text = range []string{"a", "ab", "abc"} {
		assert.False(t, w.Look())
	}
	assert.Empty(t, puts)
	assert.True(t, w.Look())
	assert.False(t, w.Look(), "one reading is enough")
	w.Force()
	assert.True(t, w.Look())
	assert.Equal(t, []string{"abc", "abc"}, puts)
}

func TestStampChangesWithAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	stamps := map[string]bool{Stamp(name): true}
	for _, text := range []string{"", "a", "ab"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		stamps[Stamp(name)] = true
	}
	assert.Len(t, stamps, 4)
	assert.Equal(t, Stamp(name), Stamp(name))
}
