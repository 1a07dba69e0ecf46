package configdir

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/core/filewatch"
)

// Watch looks at the files every so often, and compares these with the files read, by name, size
// and time, until the context ends. Watch reads the files when they have changed, and once for each
// value of now. Watch calls put with files that were the same at two looks and after the reading,
// so that none is taken while a program writes it, unless that pauses for longer. If put asks for
// another look, Watch calls it again at a later one.
func (d Dirs) Watch(ctx context.Context, since *Config, every time.Duration, now <-chan os.Signal, put func(*Config, error) (again bool)) {
	watch := filewatch.Watch[*Config]{Read: d.Read, Stamp: d.stamp, Known: since.stamp, Last: since.stamp}
	watch.Put = func(config *Config, err error) {
		if put(config, err) {
			watch.Force()
		}
	}
	watch.Run(ctx, every, now)
}

// stamp returns a text that changes with the files for Read, or with their errors.
func (d Dirs) stamp() string {
	var names []string
	if d.Dir != "" {
		for _, name := range []string{limitfile.Name, checkserver.Name, checkserver.OverridesName} {
			names = append(names, filepath.Join(d.Dir, name), filepath.Join(d.Dir, configfile.Refused(name)))
		}
	}
	if d.File != "" {
		names = append(names, d.File)
	}
	fault := ""
	if d.Envoy != "" {
		files, err := rules.Files(d.Envoy)
		if err != nil {
			fault = err.Error()
		}
		for _, name := range files {
			names = append(names, filepath.Join(d.Envoy, name))
		}
	}
	return filewatch.Stamp(names...) + fault
}
