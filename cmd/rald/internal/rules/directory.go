package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Options are how a directory is read. The zero value is the default.
type Options struct {
	// Merge lets several files have rules of one domain, as the reference does with
	// MERGE_DOMAIN_CONFIG. Their descriptors are added in the order of the files' names.
	Merge bool
}

// Read returns the rules of all files of a directory and those below it whose names end with
// .yaml or .yml and do not begin with a dot, in the order of their names. The error joins an
// *fault.Error for each fault: one bad file refuses the directory.
func Read(dir string, options Options) (*Set, error) {
	names, err := Files(dir)
	if err != nil {
		return nil, err
	}
	var all []Source
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, Source{Name: filepath.Join(dir, name), Text: text})
	}
	return Parse(all, options)
}

// Files returns the names of the files that Read reads, from the directory on.
func Files(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir:
			return nil
		case strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".yml"):
			return nil
		}
		// A link to a file counts, as in a directory that Kubernetes mounts.
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the directory of rules: %w", err)
	}
	return names, nil
}

// Source is a file that was read.
type Source struct {
	Name string
	Text []byte
}

// Parse returns the rules of several files. The error is that of Read.
func Parse(files []Source, options Options) (*Set, error) {
	set := &Set{domains: map[string]*Domain{}}
	var faults []error
	for _, f := range files {
		r := reading{name: f.Name, set: set, merge: options.Merge}
		r.read(f.Text)
		faults = append(faults, r.faults...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return set, nil
}
