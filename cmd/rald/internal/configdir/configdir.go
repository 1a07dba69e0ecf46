// Package configdir reads rald's configuration, and watches its files:
//
//	DIR/limits.yaml   limits that clients may call by name: see package limitfile
//	DIR/check.yaml    rules of the HTTP check: see package checkserver
//	DIR/envoy/        configuration files of envoyproxy/ratelimit: see package rules
package configdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/policy"
)

type Dirs struct {
	Dir   string        // has limits.yaml and check.yaml; "" is none
	Envoy string        // has the configuration of Envoy's rate limit service; "" is none
	Rules rules.Options // how to read Envoy
}

// Under returns the directories with Envoy's elsewhere, or if that is "" in dir/envoy if present.
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

// Config is the contents of the directories.
type Config struct {
	Limits *limitfile.File    // also of Checks
	Checks *checkserver.Rules // nil if there are none
	Rules  *rules.Set         // nil if Dirs.Envoy is ""
	Named  int                // the number of limits in limits.yaml, which clients can call

	stamp string // of the files before they were read
}

var anyLimit = policy.Must(policy.Funnel(1, 1, time.Second)) // stands for a limit in a faulty file

// Read reads all files. Without any file it fails. A faulty file refuses all; the error joins a *configfile.Error for each
// fault. While limits.yaml has faults, check.yaml may name any limit.
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
			// To find the other faults of the checks: a name may be a limit of that file.
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
	if d.Dir != "" && c.Limits.IsMissing && c.Checks == nil && c.Rules == nil {
		return nil, fmt.Errorf("%s has neither %s nor %s nor a directory envoy", d.Dir, limitfile.Name, checkserver.Name)
	}
	c.Named = len(c.Limits.Names())
	if c.Checks != nil {
		c.Checks.AddTo(c.Limits)
	}
	return c, nil
}

// Succeeds returns an error if the limits of an earlier configuration are gone with their file.
func (c *Config) Succeeds(before *Config) error {
	if before.Named == 0 || !c.Limits.IsMissing {
		return nil
	}
	return fmt.Errorf("%s is gone, and %d limits were there: a file with limits: {} is accepted", limitfile.Name, before.Named)
}
