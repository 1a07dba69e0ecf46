package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
)

// Options are how a directory is read. The zero value is the default.
type Options struct {
	// Merge lets several files have rules of a domain, like MERGE_DOMAIN_CONFIG in the reference.
	// Their descriptors are added in order of the files' names.
	Merge bool
}

// Read returns the rules of all files below a directory that end with .yaml or .yml and do not
// begin with a dot, in order of their names. The error joins a *configfile.Error for each fault:
// one bad file refuses the directory, and so does a lack of files.
func Read(dir string, options Options) (*Set, error) {
	names, err := Files(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, &configfile.Error{File: dir, Err: errors.New("no file here ends with .yaml or .yml: a file with a domain and no descriptors is accepted")}
	}
	var all []Source
	for _, name := range names {
		text, err := configfile.Read(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, Source{Name: filepath.Join(dir, name), Text: text})
	}
	return Parse(all, options)
}

// Files returns the names of the files that Read reads, below the directory. It follows links,
// since Kubernetes mounts a directory of links; a link back to a parent is an error. With an error
// it returns the names of the other files.
func Files(dir string) (names []string, err error) {
	if names, err = filesBelow(dir, "", nil); err != nil {
		return names, fmt.Errorf("the directory of rules: %w", err)
	}
	return names, nil
}

func filesBelow(dir, below string, above []string) (names []string, err error) {
	folder, err := filepath.EvalSymlinks(filepath.Join(dir, below))
	if err != nil {
		return nil, err
	}
	if slices.Contains(above, folder) {
		return nil, fmt.Errorf("%s leads back to %s", filepath.Join(dir, below), folder)
	}
	entries, err := os.ReadDir(folder)
	faults := []error{err}
	for _, entry := range entries {
		name := filepath.Join(below, entry.Name())
		isRules := strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
		if strings.HasPrefix(entry.Name(), ".") || entry.Type().IsRegular() && !isRules {
			continue
		}
		info, err := os.Stat(filepath.Join(folder, entry.Name()))
		switch {
		case err != nil:
			faults = append(faults, err)
		case info.IsDir():
			inner, err := filesBelow(dir, name, append(above, folder))
			names, faults = append(names, inner...), append(faults, err)
		case info.Mode().IsRegular() && isRules:
			names = append(names, name)
		}
	}
	return names, errors.Join(faults...)
}

type Source struct {
	Name string
	Text []byte
}

// Parse returns the rules of several files, with Read's error.
func Parse(files []Source, options Options) (*Set, error) {
	set := &Set{domains: map[string]*Domain{}}
	var faults []error
	known := links{named: map[nameIn]bool{}}
	for _, source := range files {
		r := reading{name: source.Name, set: set, merge: options.Merge, links: &known}
		r.read(source.Text)
		faults = append(faults, r.Faults()...)
	}
	if faults = append(faults, known.faults()...); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return set, nil
}
