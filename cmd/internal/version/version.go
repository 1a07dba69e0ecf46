// Package version tells a command's version, for its flag and command version.
package version

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
)

// release and revision name a build that has no Git, as in an image. The linker sets them, with -X.
var release, revision string

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
	version, built := cmp.Or(release, info.Main.Version, "(devel)"), ""
	if revision, changed := Revision(info); revision != "" {
		built = ", revision " + revision
		if changed {
			built += " with changes"
		}
	}
	return fmt.Sprintf("%s %s%s, %s\n", command, version, built, info.GoVersion)
}

// Revision returns the revision of a build, "" if unknown. changed reports local changes.
func Revision(info *debug.BuildInfo) (name string, changed bool) {
	name = revision
	for _, buildSetting := range info.Settings {
		switch buildSetting.Key {
		case "vcs.revision":
			name = buildSetting.Value
		case "vcs.modified":
			changed = buildSetting.Value == "true"
		}
	}
	return name, changed
}
