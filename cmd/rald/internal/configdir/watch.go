package configdir

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/rules"
)

// Watch compares the files every so often with those read, by name, size and time, and calls reload
// when they changed and whenever now has a value, until the context ends.
func (d Dirs) Watch(ctx context.Context, since *Config, every time.Duration, now <-chan os.Signal, reload func()) {
	known := since.stamp
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-now:
			asked = true
		}
		if is := d.stamp(); asked || is != known {
			known = is
			reload()
		}
	}
}

// stamp returns a text that changes with the files for Read, or with their errors.
func (d Dirs) stamp() string {
	var text strings.Builder
	if d.Dir != "" {
		for _, name := range []string{limitfile.Name, checkserver.Name, checkserver.OverridesName} {
			writeStamp(&text, filepath.Join(d.Dir, name))
			writeStamp(&text, filepath.Join(d.Dir, configfile.Refused(name)))
		}
	}
	if d.Envoy != "" {
		names, err := rules.Files(d.Envoy)
		if err != nil {
			text.WriteString(err.Error())
		}
		for _, name := range names {
			writeStamp(&text, filepath.Join(d.Envoy, name))
		}
	}
	return text.String()
}

func writeStamp(text *strings.Builder, name string) {
	text.WriteString(name + " ")
	// A link may lead to another file of the same size and time.
	file, err := filepath.EvalSymlinks(name)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(file)
	}
	if err != nil {
		text.WriteString(err.Error())
	} else {
		text.WriteString(file + info.ModTime().String())
		text.WriteString(" " + strconv.FormatInt(info.Size(), 10))
	}
	text.WriteByte('\n')
}
