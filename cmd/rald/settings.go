package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	"github.com/ral-limiter/ral/cmd/rald/rules"
)

// settings are those of the command line and the environment.
type settings struct {
	dir    string // of limits, or ""
	listen string
	envoy  envoySettings
	admin  adminSettings
	check  checkSettings
	fleet  fleetSettings
	keys   families.Config    // of clients of Redis, without OnEvent and what fleet says
	redis  redisserver.Config // without Families, Limits and Log
	drain  time.Duration
	tls    *tls.Config
}

// envoySettings are those of Envoy's rate limit service.
type envoySettings struct {
	dir     string // of rules; "" is no service
	listen  string
	http    string // "" is none
	rules   rules.Options
	service envoyserver.Config // without Families
}

// checkSettings are those of the HTTP check.
type checkSettings struct {
	listen string
	wanted bool // by the command line
}

const mergeUsage = "let several files have rules of one domain of that service, as with MERGE_DOMAIN_CONFIG"

const usage = `Usage: rald [flags] [DIR]
       rald check [-envoy] [-envoy-merge] DIR
       rald version

Rald keeps limits for clients of Redis: CL.THROTTLE as redis-cell has it, and RAL.TAKE,
RAL.PEEK, RAL.REFUND, RAL.WAIT and RAL.RESET for every limit. DIR has limits.yaml, the limits
that clients may call by name. If DIR has check.yaml it answers the HTTP checks of nginx, Caddy
and Traefik. If there is DIR/envoy, or with -envoy, it answers Envoy's rate limit service, too,
by the configuration files of envoyproxy/ratelimit. It reads all of them again when they change.

`

// parse reads the command line.
func parse(args []string, getenv func(string) string, problems io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("rald", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() {
		_, _ = fmt.Fprint(problems, usage)
		flags.PrintDefaults()
	}
	var rounding, passwordFile, cert, key string
	flags.StringVar(&s.listen, "listen", "127.0.0.1:7379", "the `address` for clients, or unix: and the path of a socket; other than loopback needs a password or TLS")
	flags.StringVar(&s.envoy.dir, "envoy", "", "a `directory` of configuration files of envoyproxy/ratelimit, to answer Envoy's rate limit service; default DIR/envoy, if it is there")
	flags.StringVar(&s.envoy.listen, "envoy-listen", "127.0.0.1:8081", "the `address` of that service, or unix: and the path of a socket; other than loopback needs TLS")
	flags.StringVar(&s.envoy.http, "envoy-http", "", "an `address` for its pages /json, /healthcheck and /rlconfig; default none")
	flags.BoolVar(&s.envoy.rules.Merge, "envoy-merge", false, mergeUsage)
	s.envoy.service.Headers = true
	flags.BoolVar(&s.envoy.service.Shadow, "envoy-shadow", false, "admit every request of that service, as with SHADOW_MODE")
	flags.BoolVar(&s.envoy.service.Quota, "envoy-quota", false, "treat every rule of that service as if it had quota_mode, as with QUOTA_MODE")
	flags.BoolVar(&s.envoy.service.Metadata, "envoy-metadata", false, "put request and rules in the dynamic metadata of that service's responses, as with RESPONSE_DYNAMIC_METADATA")
	s.admin.define(flags)
	flags.StringVar(&s.check.listen, "check-listen", "127.0.0.1:7380", "the `address` for HTTP checks, if DIR has check.yaml; other than loopback needs TLS")
	s.fleet.define(flags)
	flags.StringVar(&s.keys.Dir, "state", stateDir(getenv), "the `directory` that keys are kept in over a restart; none keeps them in memory alone")
	flags.DurationVar(&s.keys.Every, "save-every", 10*time.Second, "the time between two saves: what a killed server forgets at most")
	flags.IntVar(&s.keys.MaxKeys, "max-keys", 1<<20, "the most keys of each family of limits")
	flags.IntVar(&s.redis.Clients, "max-clients", 10_000, "the most connections")
	flags.DurationVar(&s.redis.Idle, "idle", time.Hour, "the time after which a connection without commands ends")
	flags.DurationVar(&s.drain, "drain", 10*time.Second, "the time for commands under way when the server is stopped")
	flags.StringVar(&rounding, "rounding", "true", "the `name` of how CL.THROTTLE rounds to seconds: true, redis-cell or dragonfly")
	flags.StringVar(&passwordFile, "password-file", "", "a `file` with the password for AUTH; default the environment's RALD_PASSWORD, or none")
	flags.StringVar(&cert, "tls-cert", "", "a `file` with the certificate for TLS")
	flags.StringVar(&key, "tls-key", "", "a `file` with its key")
	if len(args) == 1 && args[0] == "help" {
		args = []string{"-h"}
	}
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch flags.NArg() {
	case 0:
	case 1:
		s.dir = flags.Arg(0)
	default:
		return s, fmt.Errorf("one directory is accepted, not %q: flags come before it", flags.Args())
	}
	s.envoy.dir = configdir.Under(s.dir, s.envoy.dir).Envoy
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	s.check.wanted = given["check-listen"]
	for _, name := range []string{"envoy-listen", "envoy-http", "envoy-merge", "envoy-shadow", "envoy-quota", "envoy-metadata"} {
		if given[name] && s.envoy.dir == "" {
			return s, fmt.Errorf("-%s needs -envoy, or the directory envoy in DIR", name)
		}
	}
	if err = s.fleet.complete(getenv, given); err != nil {
		return s, err
	}
	if s.keys.Dir == "none" || s.fleet.of != nil {
		s.keys.Dir = ""
	}
	for _, f := range []struct {
		name string
		bad  bool
		got  any
		want string
	}{
		{"save-every", s.keys.Every <= 0, s.keys.Every, "above 0"},
		{"max-keys", s.keys.MaxKeys < 1, s.keys.MaxKeys, "1 or more"},
		{"max-clients", s.redis.Clients < 1, s.redis.Clients, "1 or more"},
		{"idle", s.redis.Idle <= 0, s.redis.Idle, "above 0"},
		{"drain", s.drain < 0, s.drain, "0 or more"},
	} {
		if f.bad {
			return s, fmt.Errorf("-%s is %v: %s is accepted", f.name, f.got, f.want)
		}
	}
	if s.redis.Rounding, err = redisserver.ParseRounding(rounding); err != nil {
		return s, fmt.Errorf("-%w", err)
	}
	if s.redis.Password, err = password(passwordFile, getenv); err != nil {
		return s, err
	}
	if s.tls, err = certificate(cert, key); err != nil {
		return s, err
	}
	if err = s.admin.complete(getenv); err != nil {
		return s, err
	}
	return s, s.isSafe()
}

// stateDir returns the default directory of the state: systemd's, or one of the user's.
func stateDir(getenv func(string) string) string {
	if dir := getenv("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "rald")
	}
	return "none"
}

func password(file string, getenv func(string) string) (string, error) {
	if file == "" {
		return getenv("RALD_PASSWORD"), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("-password-file: %w", err)
	}
	word := strings.TrimRight(string(text), "\r\n")
	if word == "" {
		return "", fmt.Errorf("-password-file: %s is empty", file)
	}
	return word, nil
}

func certificate(cert, key string) (*tls.Config, error) {
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, errors.New("-tls-cert and -tls-key go together")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// isSafe refuses an address that others reach, unless they need a password or a
// certificate tells them what they talk to. Envoy's service and the HTTP check have no password.
func (s *settings) isSafe() error {
	err := isSafe("-listen", s.listen, s.tls != nil || s.redis.Password != "", "RALD_PASSWORD, -password-file or -tls-cert")
	if err == nil {
		err = isSafe("-check-listen", s.check.listen, s.tls != nil, "-tls-cert")
	}
	if err == nil && s.envoy.dir != "" {
		err = isSafe("-envoy-listen", s.envoy.listen, s.tls != nil, "-tls-cert")
		if err == nil && s.envoy.http != "" {
			err = isSafe("-envoy-http", s.envoy.http, s.tls != nil, "-tls-cert")
		}
	}
	if err == nil && s.admin.listen != "" {
		err = isSafe("-admin", s.admin.listen, s.tls != nil && len(s.admin.tokens) > 0, "-tls-cert and -admin-tokens")
	}
	return err
}
