package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// disk is Replace's use of the file system, for tests of its order.
type disk struct {
	sync    func(*os.File) error
	rename  func(from, to string) error
	syncDir func(dir string) error
}

var realDisk = disk{sync: (*os.File).Sync, rename: os.Rename, syncDir: syncDir}

// Replace replaces the file at path by the bytes of write, with mode 0600. At any moment path has
// the whole old or new file, even if the process is killed or the machine loses power. Replace
// replaces the target of a symbolic link.
//
// If write or anything else fails, the old file stays and no temporary file is left. If only the
// sync of the directory fails, the new file is in place, but a loss of power may undo that. A
// killed process may leave a temporary file, which Lock removes. Concurrent calls do not
// disturb each other: the last file stays. Lock ensures one process.
func Replace(path string, write func(io.Writer) error) error { return realDisk.replace(path, write) }

func (d disk) replace(path string, write func(io.Writer) error) (err error) {
	path, err = target(path)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	// CreateTemp sets mode 0600.
	file, err := os.CreateTemp(dir, temporaryPrefix(name)+"*")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	open, inPlace := true, false
	defer func() {
		// Runs also if write panics.
		if open {
			// err says more than an error of Close.
			_ = file.Close()
		}
		if !inPlace {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	// Otherwise a loss of power could leave an empty file under the name.
	if err := d.sync(file); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	open = false
	if err := file.Close(); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := d.rename(file.Name(), path); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	inPlace = true
	if err := d.syncDir(dir); err != nil {
		return fmt.Errorf("state file: %s is in place, but a loss of power may undo that: %w", path, err)
	}
	return nil
}

func temporaryPrefix(name string) string { return "." + name + ".new-" }

// removeTemporaries removes temporary files of killed processes, as far as possible.
func removeTemporaries(path string) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	all, _ := os.ReadDir(dir)
	for _, entry := range all {
		if strings.HasPrefix(entry.Name(), temporaryPrefix(name)) && entry.Type().IsRegular() {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// Resolve returns the present target of path, existing or not, as an absolute path without symbolic
// links. A program that keeps a file for long resolves its path once: a changed link or working
// directory would lead to a file that it has not locked. Resolve fails if the target is no regular
// file.
func Resolve(path string) (string, error) {
	path, err := target(path)
	if err != nil {
		return "", fmt.Errorf("state file: %w", err)
	}
	return path, nil
}

func target(path string) (string, error) {
	if path == "" {
		return "", errors.New("the path is empty")
	}
	for range 40 {
		dir, name := filepath.Split(path)
		dir, err := resolveDir(dir)
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil
		case err != nil:
			return "", err
		case info.Mode().IsRegular():
			return path, nil
		case info.Mode()&fs.ModeSymlink == 0:
			return "", fmt.Errorf("%s is not a regular file", path)
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			// Join would remove ".." before links are followed.
			to = dir + string(filepath.Separator) + to
		}
		path = to
	}
	return "", fmt.Errorf("too many symbolic links lead to %s", path)
}

// resolveDir returns a directory as an absolute path without symbolic links.
func resolveDir(dir string) (string, error) {
	switch {
	case runtime.GOOS == "windows":
		// Windows removes ".." before it follows links.
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		dir = abs
	case !filepath.IsAbs(dir):
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		dir = wd + string(filepath.Separator) + dir
	}
	return filepath.EvalSymlinks(dir)
}
