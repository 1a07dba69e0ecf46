package main

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/policy"
)

var (
	modes   = map[string]fleet.Mode{"exact": fleet.Exact, "leased": fleet.Leased}
	outages = map[string]fleet.Fallback{"share": fleet.FallbackShare, "open": fleet.FallbackOpen, "closed": fleet.FallbackClosed}
)

// settings are what all servers of the fleet limit by.
type settings struct {
	Mode   string `json:"mode"`
	Outage string `json:"outage"`
	Limit  string `json:"limit"`
	Budget string `json:"budget"`
}

func (s *settings) define(flags *flag.FlagSet) {
	flags.StringVar(&s.Mode, "mode", "exact", "where calls are decided: exact (each in Redis) or leased (by each server, on units taken ahead)")
	flags.StringVar(&s.Outage, "outage", "share", "how calls are answered without Redis: share (of the limit, to each server), open or closed")
	flags.StringVar(&s.Limit, "limit", "100/1s", "calls that all servers together admit, in bursts of as many")
	flags.StringVar(&s.Budget, "budget", fleet.DefaultBudget.String(), "how long a call waits for Redis at most")
}

// args are the flags that define the same settings.
func (s *settings) args() []string {
	return []string{"-mode", s.Mode, "-outage", s.Outage, "-limit", s.Limit, "-budget", s.Budget}
}

// check returns an error that names the first flag that is not acceptable.
func (s *settings) check() error {
	_, err := s.config("")
	return err
}

// config is that of a server whose Redis is at the address.
func (s *settings) config(redis string) (c fleet.Config, err error) {
	var known bool
	if c.Mode, known = modes[s.Mode]; !known {
		return c, notOne("mode", s.Mode, modes)
	}
	if c.Outage, known = outages[s.Outage]; !known {
		return c, notOne("outage", s.Outage, outages)
	}
	if c.Budget, err = time.ParseDuration(s.Budget); err != nil || c.Budget <= 0 {
		return c, fmt.Errorf("-budget %q is not a positive duration, such as 5ms", s.Budget)
	}
	count, per, err := s.limit()
	if err != nil {
		return c, err
	}
	if c.Policy, err = policy.Funnel(count, count, per); err != nil {
		return c, fmt.Errorf("-limit %q: %w", s.Limit, err)
	}
	c.Name = "example"
	c.Redis = rueidis.ClientOption{InitAddress: []string{redis}}
	c.Servers = servers
	return c, nil
}

func notOne[T any](name, value string, of map[string]T) error {
	return fmt.Errorf("-%s %q is none of %s", name, value, strings.Join(slices.Sorted(maps.Keys(of)), ", "))
}

// limit reads 100/1s.
func (s *settings) limit() (count int64, per time.Duration, err error) {
	units, period, _ := strings.Cut(s.Limit, "/")
	count, err = strconv.ParseInt(units, 10, 64)
	if err == nil {
		per, err = time.ParseDuration(period)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("-limit %q is not a number of calls and a duration, such as 100/1s", s.Limit)
	}
	return count, per, nil
}
