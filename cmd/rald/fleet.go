package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/observe/eventlog"
)

type fleetSettings struct {
	// url is "" for none.
	url    string
	mode   string
	outage string

	// config is nil after complete without a Redis.
	config *families.Fleet
}

func (f *fleetSettings) define(flags *flag.FlagSet) {
	f.config = &families.Fleet{}
	flags.StringVar(&f.url, "redis", "", "the `URL` of a Redis that keeps the keys, for several servers: redis://host:6379, or rediss:// with TLS; several addresses, of a cluster, are separated by commas; its password is in the URL or in RALD_REDIS_PASSWORD")
	flags.StringVar(&f.mode, "fleet", "exact", "the `mode` of these servers: exact, by a round trip to Redis for each call, or leased")
	flags.StringVar(&f.config.Name, "fleet-name", "rald", fmt.Sprintf("the `name` of these servers, 1 to %d bytes: those of one name share keys", families.MaxName))
	flags.StringVar(&f.outage, "outage", "share", "the `answer` of calls while Redis is away: share, each server by its part of the limit, open or closed")
	flags.IntVar(&f.config.Servers, "fleet-servers", 0, "the least `number` of servers that share a limit while Redis is away; 0 goes by those that were counted")
	flags.DurationVar(&f.config.Budget, "redis-budget", 5*time.Millisecond, "the longest that a call waits for Redis")
}

// nameOfFleet matches the names of -fleet-name.
var nameOfFleet = regexp.MustCompile(`^[\w.-]+$`)

// complete checks the settings. given has the names of the flags that were set, and state is -state.
func (f *fleetSettings) complete(env environment, given map[string]bool, state string) error {
	if f.url == "" {
		f.config = nil
		return nil
	}
	if given["state"] && state != "none" {
		return errors.New("-state is of no use with -redis, which keeps the keys: leave it out, or none")
	}
	var err error
	if f.config.Outage, err = families.ParseOutage(f.outage); err != nil {
		return fmt.Errorf("-%w", err)
	}
	f.config.Leased = f.mode == "leased"
	switch {
	case f.mode != "exact" && !f.config.Leased:
		return fmt.Errorf("-fleet is %q: exact or leased is accepted", f.mode)
	case len(f.config.Name) > families.MaxName || !nameOfFleet.MatchString(f.config.Name):
		return fmt.Errorf("-fleet-name is %q: 1 to %d letters, digits, dots, dashes and underscores are accepted", f.config.Name, families.MaxName)
	case f.config.Servers < 0:
		return fmt.Errorf("-fleet-servers is %d: 0 or more is accepted", f.config.Servers)
	case f.config.Budget <= 0 || f.config.Budget > time.Minute:
		return fmt.Errorf("-redis-budget is %v: above 0, up to 1m, is accepted", f.config.Budget)
	}
	if f.config.Redis, err = parseRedis(f.url); err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	if f.config.Redis.Password == "" {
		f.config.Redis.Password = env.get("RALD_REDIS_PASSWORD")
	}
	return nil
}

// parseRedis parses redis://[user:password@]host[:port][,host[:port]...][/database], keeping the
// password out of its errors.
func parseRedis(text string) (clientOption rueidis.ClientOption, err error) {
	const want = "redis://host:6379, redis://user:password@host:6379/0, or rediss:// in place of redis:// for TLS, is accepted"
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "redis" && scheme != "rediss" {
		return clientOption, fmt.Errorf("the URL begins with %.16q: %s", scheme, want)
	}
	user, hosts := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, hosts = rest[:at+1], rest[at+1:]
	}
	hosts, path, _ := strings.Cut(hosts, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		address := host
		if _, _, err := net.SplitHostPort(host); err != nil {
			address = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		name, port, err := net.SplitHostPort(address)
		if number, e := strconv.ParseUint(port, 10, 16); err != nil || name == "" || e != nil || number == 0 {
			return clientOption, fmt.Errorf("%q is no address: %s", host, want)
		}
		clientOption.InitAddress = append(clientOption.InitAddress, address)
	}
	address, err := url.Parse(scheme + "://" + user + "host/" + path)
	if err != nil {
		return clientOption, errors.New("the user, the password or the part after the address cannot be read: in these, characters other than letters and digits are written as %XX; " + want)
	}
	clientOption.Username = address.User.Username()
	clientOption.Password, _ = address.User.Password()
	if clientOption.Password == "" && user != "" && !strings.Contains(user, ":") {
		return clientOption, errors.New("there is a user and no password: :password@ is a password without a user")
	}
	if address.RawQuery != "" || address.Fragment != "" {
		return clientOption, errors.New("nothing may follow the number of the database: " + want)
	}
	if number := strings.Trim(path, "/"); number != "" {
		if _, err := fmt.Sscanf(number+"\n", "%d\n", &clientOption.SelectDB); err != nil || clientOption.SelectDB < 0 {
			return clientOption, fmt.Errorf("the database is %q: 0 or more is accepted", number)
		}
	}
	if scheme == "rediss" {
		clientOption.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return clientOption, nil
}

// families configures the keys of a door. Their names in Redis have the suffix.
func (f *fleetSettings) families(config families.Config, suffix string, log *slog.Logger) families.Config {
	if f.config == nil {
		return config
	}
	shared := *f.config
	shared.Name += suffix
	shared.OnEvent = func(name string) func(fleet.Event) { return fleet.LogEvents(name, eventlog.New(log)) }
	config.Dir, config.Fleet = "", &shared
	return config
}
