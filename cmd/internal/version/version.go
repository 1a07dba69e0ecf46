// Package version says which version of a command runs, for its flag -version and its command
// version.
package version

import (
	"fmt"
	"runtime/debug"
	"slices"
)

// Asked reports whether a command line asks for the version.
func Asked(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"version", "-version", "--version"}, args[0])
}

// Line returns the version of the command in a line: the module's version, the revision if the
// build knows it, and the version of Go. A build from a clone has the version "(devel)", or the
// one that Go makes of the revision.
func Line(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return command + ": built without modules\n"
	}
	return line(command, info)
}

func line(command string, info *debug.BuildInfo) string {
	version, built := info.Main.Version, ""
	if version == "" {
		version = "(devel)"
	}
	if revision, changed := Revision(info); revision != "" {
		built = ", revision " + revision
		if changed {
			built += " with changes"
		}
	}
	return fmt.Sprintf("%s %s%s, %s\n", command, version, built, info.GoVersion)
}

// Revision returns the revision that a command was built from, "" if the build does not know it,
// and reports whether the build had changes.
func Revision(info *debug.BuildInfo) (revision string, changed bool) {
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	return revision, changed
}
