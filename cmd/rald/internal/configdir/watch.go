package configdir

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

// Watch looks every so often whether files have changed since they were read, by their names,
// sizes and times, and calls reload then, and whenever now has a value, until the context ends.
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

// stamp is another text if the files have changed.
func (d Dirs) stamp() string {
	var text strings.Builder
	for _, dir := range []string{d.Dir, d.Envoy} {
		if dir == "" {
			continue
		}
		names, err := rules.Files(dir)
		if err != nil {
			text.WriteString(err.Error())
		}
		for _, name := range names {
			text.WriteString(name)
			// A link may lead to another file of the same size and time.
			file, _ := filepath.EvalSymlinks(filepath.Join(dir, name))
			if info, err := os.Stat(file); err != nil {
				text.WriteString(err.Error())
			} else {
				text.WriteString(file + info.ModTime().String())
				text.WriteString(" " + strconv.FormatInt(info.Size(), 10))
			}
			text.WriteByte('\n')
		}
	}
	return text.String()
}
