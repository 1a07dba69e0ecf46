package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// environment has elements NAME=value, like os.Environ.
type environment []string

func (e environment) get(name string) string {
	for _, text := range e {
		if value, ok := strings.CutPrefix(text, name+"="); ok {
			return value
		}
	}
	return ""
}

// variable returns RALD_MAX_KEYS for max-keys.
func variable(flag string) string {
	return "RALD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// otherVariables are the secrets, and the flags in rald.service's environment.
var otherVariables = []string{"RALD_PASSWORD", "RALD_ADMIN_TOKENS", "RALD_REDIS_PASSWORD", "RALD_FLAGS"}

// serviceLink matches Kubernetes's variables for services named rald or rald-...
var serviceLink = regexp.MustCompile(`^RALD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// set sets flags from their variables. A variable RALD_... without a flag is an error.
func (e environment) set(flags *flag.FlagSet) (err error) {
	known := map[string]*flag.Flag{}
	flags.VisitAll(func(option *flag.Flag) { known[variable(option.Name)] = option })
	for _, text := range e {
		name, value, _ := strings.Cut(text, "=")
		option := known[name]
		switch {
		case option == nil && strings.HasPrefix(name, "RALD_") && !slices.Contains(otherVariables, name) && !serviceLink.MatchString(name):
			return fmt.Errorf("the environment has %s, which is no setting: rald -h names all", name)
		case option == nil || value == "":
		default:
			if err := flags.Set(option.Name, value); err != nil {
				return fmt.Errorf("%s is %q, the environment's -%s: %w", name, value, option.Name, accepted(option.Value, err))
			}
		}
	}
	return nil
}

// accepted returns an error that says what v accepts, in place of package flag's "parse error".
func accepted(v flag.Value, err error) error {
	getter, ok := v.(flag.Getter)
	if !ok {
		return err
	}
	switch getter.Get().(type) {
	case bool:
		return errors.New("true or false is accepted")
	case int:
		return errors.New("a whole number is accepted")
	case float64:
		return errors.New("a number such as 0.5 is accepted")
	case time.Duration:
		return errors.New("a time such as 1m30s is accepted")
	case *slog.Level:
		return errors.New("debug, info, warn or error is accepted")
	}
	return err
}

// stateDir returns the default directory of the state: systemd's, or the user's.
func (e environment) stateDir() string {
	if dir := e.get("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "rald")
	}
	return "none"
}
