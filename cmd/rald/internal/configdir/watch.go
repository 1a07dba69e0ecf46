package configdir

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

// Watch looks at the files every so often, and compares them with those read, by name, size and
// time, until the context ends. It reads them when they have changed, and once for each value of
// now. It calls put with files that were the same at two looks and after the reading, so that none
// is taken while a program writes it, unless that pauses for longer.
func (d Dirs) Watch(ctx context.Context, since *Config, every time.Duration, now <-chan os.Signal, put func(*Config, error)) {
	w := watcher{read: d.Read, stamp: d.stamp, put: put, known: since.stamp, last: since.stamp}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			w.look()
		case <-now:
			w.asked = true
		}
	}
}

type watcher struct {
	read  func() (*Config, error)
	stamp func() string
	put   func(*Config, error)
	// known is the stamp of the files that were put, and last is the stamp at the last look.
	known, last string
	// asked reports whether the files are to be read although they are known.
	asked bool
}

func (w *watcher) look() {
	before, stamp := w.last, w.stamp()
	w.last = stamp
	if stamp != before || stamp == w.known && !w.asked {
		return
	}
	c, err := w.read()
	if w.last = w.stamp(); w.last == stamp {
		w.known, w.asked = stamp, false
		w.put(c, err)
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
