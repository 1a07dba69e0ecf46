// Package version tells a command's version, for its flag and command version.
package version

import (
	"fmt"
	"runtime/debug"
	"slices"
)

func Asked(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"version", "-version", "--version"}, args[0])
}

// Line returns a command's module version, revision if known, and Go version. A build from a clone
// is "(devel)", or named by its revision.
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

// Revision returns the revision of a build, "" if unknown. changed reports local changes.
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
