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

// disk is what Replace does to a file system, for tests that look at the order.
type disk struct {
	sync    func(*os.File) error
	rename  func(from, to string) error
	syncDir func(dir string) error
}

var realDisk = disk{sync: (*os.File).Sync, rename: os.Rename, syncDir: syncDir}

// Replace puts what write writes in the place of the file at path, or of none. What is at
// path is the old file or the new one at any moment, whole, also if the process is killed or
// the machine loses power. The new file has mode 0600. A path that is a symbolic link stays
// one: the file that it leads to is replaced.
//
// If write or anything else fails, the old file stays as it was and no temporary file is
// left. There is one exception: if the directory cannot be synced, the new file is in place
// and may be lost with the machine's power, in favour of the old one. A process that is
// killed may leave a temporary file, which Lock removes.
//
// Processes and goroutines that replace one file at once do not disturb each other: the last
// one's file stays. Lock makes sure that there is one process.
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
	// A file made by CreateTemp has mode 0600.
	f, err := os.CreateTemp(dir, temporaryPrefix(name)+"*")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	open, inPlace := true, false
	defer func() {
		// Runs also if write panics.
		if open {
			_ = f.Close() // the error before says more
		}
		if !inPlace {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	// Without this a file system may put the name before the content, and a loss of
	// power leaves an empty file in the place of the old one.
	if err := d.sync(f); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	open = false
	if err := f.Close(); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := d.rename(f.Name(), path); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	inPlace = true
	if err := d.syncDir(dir); err != nil {
		return fmt.Errorf("state file: %s is in place, but a loss of power may undo that: %w", path, err)
	}
	return nil
}

// temporaryPrefix begins the names of temporary files for a file of that name.
func temporaryPrefix(name string) string { return "." + name + ".new-" }

// removeTemporaries removes temporary files for path, which processes left that were killed.
// One that cannot be removed stays: it does no harm.
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

// Resolve returns the file that a path leads to at this moment, as an absolute path without
// symbolic links, also for a file that is yet to be made. A program that keeps a file for long
// resolves its path once: a link that is set anew meanwhile, or another working directory,
// would lead it to a file that it has not locked. It fails if what is there is not a regular
// file.
func Resolve(path string) (string, error) {
	path, err := target(path)
	if err != nil {
		return "", fmt.Errorf("state file: %w", err)
	}
	return path, nil
}

// target is Resolve.
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
			to = dir + string(filepath.Separator) + to // Join would take out ".." before links are followed
		}
		path = to
	}
	return "", fmt.Errorf("too many symbolic links lead to %s", path)
}

// resolveDir returns a directory as an absolute path without symbolic links.
func resolveDir(dir string) (string, error) {
	switch {
	case runtime.GOOS == "windows":
		// There ".." is taken out before links are followed.
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
