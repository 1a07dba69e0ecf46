package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

type settings struct {
	// dir is the directory of limits, or "".
	dir    string
	limits string // a file of limits, or ""
	listen string
	envoy  envoySettings
	admin  adminSettings
	check  checkSettings
	fleet  fleetSettings
	// keys are the settings of Redis's clients, without OnEvent and fleet's settings.
	keys families.Config
	// redis has no Families, Limits and Log.
	redis redisserver.Config
	drain time.Duration
	tls   *tls.Config
	log   logSettings

	insecureNetwork                                     bool
	rounding, passwordFile, tlsCert, tlsKey, tlsClients string
}

type envoySettings struct {
	// dir is the directory of rules, or "".
	dir     string
	listen  string
	clients networks
	// http is "" for none.
	http  string
	rules rules.Options
	// service has no Families.
	service envoyserver.Config
	xds     xdsSettings
}

func (e *envoySettings) isOn() bool { return e.dir != "" || e.xds.server != "" }

// xdsSettings are about the management server that replaces the directory of rules.
type xdsSettings struct {
	// server is "" without a management server.
	server, node, ca string
	credentials      credentials.TransportCredentials
}

type checkSettings struct {
	listen  string
	clients networks
	// wanted means that the command line or the environment asks for the door.
	wanted bool
}

const mergeUsage = "let several files have rules of one domain of that service, as with MERGE_DOMAIN_CONFIG"

const limitsUsage = "a `file` of limits that clients call by name, as Go programs have them: see docs/limits-file.md"

const usage = `Usage: rald [flags] [DIR]
       rald check [-envoy] [-envoy-merge] [-limits FILE] [DIR]
       rald completion bash|zsh|fish
       rald health [flags] [URL]
       rald help|man|version

Rald keeps limits for clients of Redis: CL.THROTTLE as redis-cell has it, and RAL.TAKE, RAL.PEEK,
RAL.EXPLAIN, RAL.REFUND, RAL.WAIT, RAL.RESET, RAL.CHANGE, RAL.RESERVE, RAL.COMMIT, RAL.EXTEND and
RAL.RELEASE for every limit. DIR has limits.yaml, the limits that clients may call by name; -limits names a file with more. If DIR
has check.yaml it answers the HTTP checks of nginx, Caddy and Traefik. If there is DIR/envoy, or
with -envoy, it answers Envoy's rate limit service, too, by the configuration files of
envoyproxy/ratelimit. It reads all of them again when they change. With -envoy-xds a management
server configures that service. A flag wins over its environment variable, which -h names behind it.

`

func (s *settings) flags(env environment) *flag.FlagSet {
	flags := flag.NewFlagSet("rald", flag.ContinueOnError)
	flags.StringVar(&s.listen, "listen", "127.0.0.1:7379", "the `address` for clients, or unix: and the path of a socket; other than loopback needs a password or TLS")
	flags.StringVar(&s.limits, "limits", "", limitsUsage)
	flags.StringVar(&s.envoy.dir, "envoy", "", "a `directory` of configuration files of envoyproxy/ratelimit, to answer Envoy's rate limit service; default DIR/envoy, if it is there")
	flags.StringVar(&s.envoy.listen, "envoy-listen", "127.0.0.1:8081", "the `address` of that service, or unix: and the path of a socket; other than loopback needs TLS or -envoy-clients")
	flags.Var(&s.envoy.clients, "envoy-clients", "the `networks` whose clients -envoy-listen and -envoy-http accept, separated by commas; loopback is always accepted")
	flags.StringVar(&s.envoy.http, "envoy-http", "", "an `address` for its pages /json, /healthcheck and /rlconfig; default none")
	flags.BoolVar(&s.envoy.rules.Merge, "envoy-merge", false, mergeUsage)
	s.envoy.service.Headers = true
	flags.BoolVar(&s.envoy.service.Shadow, "envoy-shadow", false, "admit every request of that service, as with SHADOW_MODE")
	flags.BoolVar(&s.envoy.service.Quota, "envoy-quota", false, "treat every rule of that service as if it had quota_mode, as with QUOTA_MODE")
	flags.BoolVar(&s.envoy.service.Metadata, "envoy-metadata", false, "put request and rules in the dynamic metadata of that service's responses, as with RESPONSE_DYNAMIC_METADATA")
	flags.StringVar(&s.envoy.xds.server, "envoy-xds", "", "the `address` of an xDS management server that configures that service in place of files, as with CONFIG_TYPE=GRPC_XDS_SOTW")
	flags.StringVar(&s.envoy.xds.node, "envoy-xds-node", "default", "the `name` of this server's node there, as CONFIG_GRPC_XDS_NODE_ID")
	flags.StringVar(&s.envoy.xds.ca, "envoy-xds-ca", "", "a `file` with the authorities of the management server's certificate, for TLS; -tls-cert is then this server's")
	s.admin.define(flags)
	flags.StringVar(&s.check.listen, "check-listen", "127.0.0.1:7380", "the `address` for HTTP checks, if DIR has check.yaml; other than loopback needs TLS or -check-clients")
	flags.Var(&s.check.clients, "check-clients", "the `networks` whose clients -check-listen accepts")
	s.fleet.define(flags)
	flags.StringVar(&s.keys.Dir, "state", env.stateDir(), "the `directory` that keys are kept in over a restart; none keeps them in memory alone")
	flags.DurationVar(&s.keys.Every, "save-every", 10*time.Second, "the time between two saves: the most that a killed server forgets")
	flags.IntVar(&s.keys.MaxKeys, "max-keys", 1<<20, "the most keys of each family of limits")
	flags.IntVar(&s.redis.Clients, "max-clients", 10_000, "the most connections")
	flags.DurationVar(&s.redis.Idle, "idle", time.Hour, "the time after which a connection without commands ends")
	flags.DurationVar(&s.redis.Reserve.Longest, "reserve-longest", time.Minute, "the longest time from RAL.RESERVE to the deadline, RAL.EXTEND included; ended reservations are known for as long")
	flags.Float64Var(&s.redis.Reserve.Share, "reserve-share", 0.5, "the largest `share` of a limit that one reservation may hold, and at least a unit")
	flags.IntVar(&s.redis.Reserve.MaxIDs, "reserve-ids", 100_000, "the most reservations that are known, ended ones included")
	flags.BoolVar(&s.redis.Reserve.RefuseUnknown, "refuse-unknown-commits", false, "charge nothing for RAL.COMMIT of an unknown reservation, in place of all its units")
	flags.DurationVar(&s.drain, "drain", 10*time.Second, "the time for commands under way when the server is stopped")
	flags.StringVar(&s.rounding, "rounding", "true", "the `name` of how CL.THROTTLE rounds to seconds: true, redis-cell or dragonfly")
	flags.StringVar(&s.passwordFile, "password-file", "", "a `file` with the password for AUTH; default the environment's RALD_PASSWORD, or none")
	flags.StringVar(&s.tlsCert, "tls-cert", "", "a `file` with the certificate for TLS")
	flags.StringVar(&s.tlsKey, "tls-key", "", "a `file` with its key")
	flags.StringVar(&s.tlsClients, "tls-clients", "", "a `file` with the authorities of client certificates, which every address but -metrics then demands")
	flags.BoolVar(&s.insecureNetwork, "insecure-network", false, "listen on other addresses than loopback without TLS and passwords, open to all that reach them; -admin still needs tokens")
	s.log.define(flags)
	return flags
}

// parse reads the environment and then the command line, which wins.
func parse(args []string, env environment, problems io.Writer) (settings settings, err error) {
	flags := settings.flags(env)
	flags.SetOutput(problems)
	flags.Usage = func() {
		_, _ = fmt.Fprint(problems, usage)
		flags.VisitAll(func(option *flag.Flag) { option.Usage += "; " + variable(option.Name) })
		flags.PrintDefaults()
	}
	if len(args) > 0 && args[0] == "help" {
		args = []string{"-h"}
	}
	unset := env.set(flags)
	if err := flags.Parse(args); err != nil {
		return settings, err
	}
	if unset != nil {
		return settings, unset
	}
	switch flags.NArg() {
	case 0:
	case 1:
		settings.dir = flags.Arg(0)
	default:
		return settings, fmt.Errorf("one directory is accepted, not %q: flags come before it", flags.Args())
	}
	settings.envoy.dir = configdir.Under(settings.dir, settings.envoy.dir).Envoy
	given := map[string]bool{}
	flags.Visit(func(option *flag.Flag) { given[option.Name] = true })
	settings.check.wanted = given["check-listen"]
	for _, need := range []struct {
		met   bool
		flags []string
		what  string
	}{
		{settings.envoy.isOn(), []string{"envoy-listen", "envoy-clients", "envoy-http", "envoy-merge", "envoy-shadow", "envoy-quota", "envoy-metadata"},
			"-envoy, the directory envoy in DIR, or -envoy-xds"},
		{settings.envoy.xds.server != "", []string{"envoy-xds-node", "envoy-xds-ca"}, "-envoy-xds"},
		{settings.fleet.url != "", []string{"fleet", "fleet-name", "outage", "fleet-servers", "redis-budget"},
			"-redis, which says where the Redis is that keeps the keys"},
	} {
		i := slices.IndexFunc(need.flags, func(name string) bool { return given[name] })
		if i >= 0 && !need.met {
			return settings, fmt.Errorf("-%s needs %s", need.flags[i], need.what)
		}
	}
	// A lost variable must not turn TLS's checks off.
	for _, name := range []string{"envoy-xds-ca", "tls-clients"} {
		if given[name] && flags.Lookup(name).Value.String() == "" {
			return settings, fmt.Errorf("-%s is \"\": a file is accepted", name)
		}
	}
	if settings.envoy.xds.server != "" && settings.envoy.dir != "" {
		return settings, fmt.Errorf("-envoy-xds configures Envoy's rate limit service in place of files, and %s has files: one of them is accepted", settings.envoy.dir)
	}
	if err = settings.fleet.complete(env, given, settings.keys.Dir); err != nil {
		return settings, err
	}
	if settings.keys.Dir == "none" || settings.fleet.config != nil {
		settings.keys.Dir = ""
	}
	for _, f := range []struct {
		name string
		bad  bool
		got  any
		want string
	}{
		{"save-every", settings.keys.Every <= 0, settings.keys.Every, "above 0"},
		{"max-keys", settings.keys.MaxKeys < 1, settings.keys.MaxKeys, "1 or more"},
		{"max-clients", settings.redis.Clients < 1, settings.redis.Clients, "1 or more"},
		{"idle", settings.redis.Idle <= 0, settings.redis.Idle, "above 0"},
		{"reserve-longest", settings.redis.Reserve.Longest < time.Millisecond, settings.redis.Reserve.Longest, "a millisecond or more"},
		{"reserve-share", !(settings.redis.Reserve.Share > 0 && settings.redis.Reserve.Share <= 1), settings.redis.Reserve.Share, "above 0, up to 1,"},
		{"reserve-ids", settings.redis.Reserve.MaxIDs < redisserver.MinIDs, settings.redis.Reserve.MaxIDs, fmt.Sprintf("%d or more", redisserver.MinIDs)},
		{"drain", settings.drain < 0, settings.drain, "0 or more"},
	} {
		if f.bad {
			return settings, fmt.Errorf("-%s is %v: %s is accepted", f.name, f.got, f.want)
		}
	}
	if settings.redis.Rounding, err = redisserver.ParseRounding(settings.rounding); err != nil {
		return settings, fmt.Errorf("-%w", err)
	}
	if settings.redis.Password, err = password(settings.passwordFile, env); err != nil {
		return settings, err
	}
	if settings.tls, err = certificate(settings.tlsCert, settings.tlsKey, settings.tlsClients); err != nil {
		return settings, err
	}
	if err = settings.envoy.xds.complete(given, settings.tls); err != nil {
		return settings, err
	}
	if err = settings.admin.complete(env); err != nil {
		return settings, err
	}
	return settings, settings.isSafe()
}

func password(file string, env environment) (string, error) {
	if file == "" {
		return env.get("RALD_PASSWORD"), nil
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

// certificate returns the configuration of TLS, nil without a certificate. With clients, a file of
// authorities, clients need their certificates.
func certificate(cert, key, clients string) (*tls.Config, error) {
	switch {
	case cert == "" && key == "" && clients != "":
		return nil, errors.New("-tls-clients needs -tls-cert and -tls-key")
	case cert == "" && key == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, errors.New("-tls-cert and -tls-key go together")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients == "" {
		return config, nil
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs, err = authorities("-tls-clients", clients)
	return config, err
}

// authorities reads the file of a flag.
func authorities(flag, file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s has no certificate in PEM", flag, file)
	}
	return pool, nil
}

// complete checks the settings. given has the names of the flags that were set. own is this
// server's certificate, or nil.
func (x *xdsSettings) complete(given map[string]bool, own *tls.Config) (err error) {
	if !given["envoy-xds"] {
		return nil
	}
	host, port, err := net.SplitHostPort(x.server)
	if number, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || number == 0 || host == "" || host+":" == onSocket {
		return fmt.Errorf("-envoy-xds is %q: host:port is accepted, with a port from 1 to 65535", x.server)
	}
	x.credentials = insecure.NewCredentials()
	if x.ca == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if own != nil {
		config.Certificates = own.Certificates
	}
	config.RootCAs, err = authorities("-envoy-xds-ca", x.ca)
	x.credentials = credentials.NewTLS(config)
	return err
}

// isSafe refuses an address that other machines reach, unless it has a password or TLS, or its
// clients' networks are named, or all are trusted. Envoy's and HTTP checks have no password.
func (s *settings) isSafe() (err error) {
	open := s.tls != nil || s.insecureNetwork
	const or = ", or -insecure-network if all that reach it may use it"
	ofEnvoy, envoyGuards := open || len(s.envoy.clients) > 0, "-tls-cert, -envoy-clients"+or
	for _, door := range []struct {
		served        bool
		flag, address string
		guarded       bool
		guards        string
	}{
		{true, "-listen", s.listen, open || s.redis.Password != "", "RALD_PASSWORD, -password-file or -tls-cert" + or},
		{true, "-check-listen", s.check.listen, open || len(s.check.clients) > 0, "-tls-cert, -check-clients" + or},
		{s.envoy.isOn(), "-envoy-listen", s.envoy.listen, ofEnvoy, envoyGuards},
		{s.envoy.isOn() && s.envoy.http != "", "-envoy-http", s.envoy.http, ofEnvoy, envoyGuards},
		{s.admin.listen != "", "-admin", s.admin.listen, open && len(s.admin.tokens) > 0,
			"-tls-cert and -admin-tokens-file, or -metrics for metrics and health alone"},
		{s.admin.metrics != "", "-metrics", s.admin.metrics, open || len(s.admin.clients) > 0, "-tls-cert, -metrics-clients" + or},
	} {
		if err == nil && door.served {
			err = isSafe(door.flag, door.address, door.guarded, door.guards)
		}
	}
	return err
}

type logSettings struct {
	format string
	level  slog.Level
}

func (l *logSettings) define(flags *flag.FlagSet) {
	flags.StringVar(&l.format, "log", "text", "the `format` of the log: text or json")
	flags.TextVar(&l.level, "log-level", slog.LevelInfo, "the least `level` of its lines: debug, info, warn or error")
}

func (l *logSettings) logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: l.level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("-log is %q: text or json is accepted", l.format)
}
