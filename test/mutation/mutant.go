package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const mutantsFolder = "test/mutation/mutants"

// mutant is a safety mechanism taken out.
type mutant struct {
	patch   string   // the patch file
	path    string   // the same within mutantsFolder, with slashes
	changes []string // the files that it changes, from the root of the repository

	name    string        // of the mechanism, unique
	without string        // consequence for users
	pkg     string        // the folder of the tests that should notice
	tests   string        // their -run pattern
	limit   time.Duration // how long they may take; 0 is the flag's
}

// readMutants reads all patches, in the order of their files' names.
func readMutants(root string) (all []mutant, err error) {
	names := map[string]string{}
	folder := filepath.Join(root, mutantsFolder)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mutant, err := parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if other, taken := names[mutant.name]; taken {
			return fmt.Errorf("%s: %s has the name %q, too", path, other, mutant.name)
		}
		names[mutant.name] = path
		mutant.patch = path
		if mutant.path, err = filepath.Rel(folder, path); err != nil {
			return err
		}
		mutant.path = filepath.ToSlash(mutant.path)
		all = append(all, mutant)
		return nil
	})
	return all, err
}

// parse reads a patch's heading, up to an empty line, and the files that it changes.
func parse(text string) (mutant mutant, err error) {
	heading, patch, ok := strings.Cut(text, "\n\n")
	if !ok {
		return mutant, errors.New("no empty line between the heading and the patch")
	}
	for line := range strings.SplitSeq(heading, "\n") {
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "Mechanism":
			mutant.name = value
		case "Without it":
			mutant.without = value
		case "Package":
			mutant.pkg = value
		case "Tests":
			mutant.tests = value
		case "Limit":
			if mutant.limit, err = time.ParseDuration(value); err != nil {
				return mutant, fmt.Errorf("Limit: %w", err)
			}
		default:
			return mutant, fmt.Errorf("the heading has %q, want Mechanism, Without it, Package, Tests or Limit", line)
		}
	}
	for field, value := range map[string]string{
		"Mechanism": mutant.name, "Without it": mutant.without, "Package": mutant.pkg, "Tests": mutant.tests,
	} {
		if value == "" {
			return mutant, fmt.Errorf("the heading has no %q", field)
		}
	}
	for line := range strings.Lines(patch) {
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			mutant.changes = append(mutant.changes, strings.TrimSpace(file))
		}
	}
	if len(mutant.changes) == 0 {
		return mutant, errors.New("the patch changes no file")
	}
	return mutant, nil
}

// apply copies the patched files from root to folder.
func (m mutant) apply(root, folder string) error {
	for _, file := range m.changes {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		copied := filepath.Join(folder, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(copied, source, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.Command("git", "apply", m.patch)
	cmd.Dir = folder
	// The folder is no part of any repository, wherever it lies.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(text string) bool { return strings.HasPrefix(text, "GIT_") }),
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not apply: %w\n%s", m.patch, err, out)
	}
	return nil
}
