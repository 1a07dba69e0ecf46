// Package configdir reads all that rald is configured by, and looks whether it has changed:
//
//	DIR/limits.yaml   limits that clients may call by name: see package limitfile
//	DIR/check.yaml    rules of the HTTP check: see package checkserver
//	DIR/envoy/        configuration files of envoyproxy/ratelimit: see package rules
package configdir

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/rules"
	"github.com/ral-limiter/ral/policy"
)

// Dirs are the directories.
type Dirs struct {
	// Dir has limits.yaml and check.yaml. "" is none.
	Dir string
	// Envoy has the configuration of Envoy's rate limit service. "" is none.
	Envoy string
	// Rules are how the files in Envoy are read.
	Rules rules.Options
}

// Under returns the directories of a configuration of which Envoy's is elsewhere, or, if
// elsewhere is "", in the directory envoy if there is one.
func Under(dir, elsewhere string) Dirs {
	d := Dirs{Dir: dir, Envoy: elsewhere}
	if dir != "" && elsewhere == "" {
		envoy := filepath.Join(dir, "envoy")
		if info, err := os.Stat(envoy); err == nil && info.IsDir() {
			d.Envoy = envoy
		}
	}
	return d
}

// Config is what the directories say.
type Config struct {
	Limits *limitfile.File    // with those of Checks
	Checks *checkserver.Rules // nil if there are none
	Rules  *rules.Set         // nil if Dirs.Envoy is ""

	stamp string // of the files before they were read
}

// anyLimit stands for a limit that is not known, because its file has a fault.
var anyLimit = policy.Must(policy.Funnel(1, 1, time.Second))

// Read reads all files. One that is faulty refuses all, and the error joins a *configfile.Error for
// each fault. While limits.yaml has faults, the names of limits in check.yaml are not judged.
func (d Dirs) Read() (*Config, error) {
	c := &Config{Limits: &limitfile.File{}, stamp: d.stamp()}
	var faults []error
	if d.Dir != "" {
		var err error
		c.Limits, err = limitfile.Read(d.Dir)
		faults = append(faults, err)
		named := func(name string) (policy.Policy, bool) {
			limit, ok := c.Limits.Limits[name]
			return limit, ok
		}
		if err != nil {
			// For the other faults of the checks: a limit that is no text may be one of that file.
			named = func(name string) (policy.Policy, bool) {
				_, err := policy.Parse(name)
				return anyLimit, err != nil
			}
		}
		if !errors.Is(err, os.ErrNotExist) {
			c.Checks, err = checkserver.Read(d.Dir, named)
			faults = append(faults, err)
		}
	}
	if d.Envoy != "" {
		var err error
		c.Rules, err = rules.Read(d.Envoy, d.Rules)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if c.Checks != nil {
		c.Checks.AddTo(c.Limits)
	}
	return c, nil
}
