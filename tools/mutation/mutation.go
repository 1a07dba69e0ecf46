package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A mutation takes one safety mechanism out.
type mutation struct {
	name string // of the mechanism, unique
	// without says what users notice without it.
	without string

	file     string // from the root of the repository
	old, new string // the text is in the file exactly once

	// tests is the -run pattern of the tests that should notice, and pkg the folder of
	// their package, or empty for the file's.
	tests string
	pkg   string
	// limit bounds the time of its tests, if it is not the flag's: short for a mutant
	// that makes them hang.
	limit time.Duration
}

// all returns the list, in the order of its parts.
func all() []mutation {
	return slices.Concat(ofPolicy, ofWriter, ofTable, ofCell, ofQueue, ofSupervisor, ofJanitor, ofEngine, ofHTTP)
}

func (m mutation) where() string {
	if m.pkg != "" {
		return m.pkg
	}
	return filepath.ToSlash(filepath.Dir(m.file))
}

// apply returns the file's text without the mechanism.
func (m mutation) apply(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s: the text to replace is %d times in %s, want once:\n%s", m.name, n, m.file, m.old)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}
