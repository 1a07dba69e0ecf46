// Package configdir reads rald's configuration, and watches its files:
//
//	DIR/limits.yaml   limits that clients may call by name: see package limitfile
//	DIR/check.yaml    rules of the HTTP check: see package checkserver
//	DIR/envoy/        configuration files of envoyproxy/ratelimit: see package rules
//	FILE              more limits, as package limitfile of the root module has them
package configdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/policy"
)

type Dirs struct {
	// Dir has limits.yaml and check.yaml. "" is none.
	Dir string
	// Envoy has the configuration of Envoy's rate limit service. "" is none.
	Envoy string
	File  string // a file of limits; "" is none
	// Rules says how to read Envoy.
	Rules rules.Options
}

// Under returns the directories with Envoy's elsewhere, or if that is "" in dir/envoy if present.
func Under(dir, elsewhere string) Dirs {
	dirs := Dirs{Dir: dir, Envoy: elsewhere}
	if dir != "" && elsewhere == "" {
		envoy := filepath.Join(dir, "envoy")
		if info, err := os.Stat(envoy); err == nil && info.IsDir() {
			dirs.Envoy = envoy
		}
	}
	return dirs
}

// Config is the contents of the directories.
type Config struct {
	// Limits has the limits of Checks, too.
	Limits *limitfile.File
	// Checks is nil if there are none.
	Checks *checkserver.Rules
	// Rules is nil if Dirs.Envoy is "".
	Rules *rules.Set

	dirs Dirs
	// stamp is the stamp of the files before they were read.
	stamp string
}

// anyLimit stands for a limit in a faulty file.
var anyLimit = policy.Must(policy.Funnel(1, 1, time.Second))

// Read reads all files. Without any file Read fails. A faulty file refuses all; the error joins a
// *configfile.Error for each fault. While limits.yaml has faults, check.yaml may name any limit.
func (d Dirs) Read() (*Config, error) {
	config := &Config{Limits: &limitfile.File{}, dirs: d, stamp: d.stamp()}
	var faults []error
	var inDir, inFile error
	if d.Dir != "" {
		if config.Limits, inDir = limitfile.Read(d.Dir); inDir != nil {
			config.Limits = &limitfile.File{}
		}
	}
	if d.File != "" {
		inFile = config.Limits.AddFile(d.File)
	}
	faults = append(faults, inDir, inFile)
	if d.Dir != "" {
		named := config.Limits.Find
		if inDir != nil || inFile != nil {
			// To find the other faults of the checks: a name may be a limit of that file.
			named = func(name string) (policy.Policy, bool) {
				_, err := policy.Parse(name)
				return anyLimit, err != nil
			}
		}
		if !errors.Is(inDir, os.ErrNotExist) {
			var err error
			config.Checks, err = checkserver.Read(d.Dir, named)
			faults = append(faults, err)
		}
	}
	if d.Envoy != "" {
		var err error
		config.Rules, err = rules.Read(d.Envoy, d.Rules)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if d.Dir != "" && d.File == "" && config.Limits.IsMissing && config.Checks == nil && config.Rules == nil {
		return nil, fmt.Errorf("%s has neither %s nor %s nor a directory envoy", d.Dir, limitfile.Name, checkserver.Name)
	}
	if config.Checks != nil {
		config.Checks.AddTo(config.Limits)
	}
	return config, nil
}

// Succeeds returns an error if the limits of an earlier configuration are gone with their file.
func (c *Config) Succeeds(before *Config) error {
	inFile := before.Limits.InFile
	inYAML := len(before.Limits.Limits) - inFile
	switch {
	case inFile > 0 && c.Limits.InFile == 0:
		return &configfile.Error{File: c.dirs.File, Err: fmt.Errorf("it has no limits, and the file before had %d", inFile)}
	case inYAML > 0 && c.Limits.IsMissing:
		return &configfile.Error{File: filepath.Join(c.dirs.Dir, limitfile.Name), Err: fmt.Errorf("it is gone, and had %d: a file with limits: {} is accepted", inYAML)}
	}
	return nil
}
