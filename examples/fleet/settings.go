package main

import (
	"flag"
	"fmt"
	"maps"
	"slices"
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
	flags.StringVar(&s.Limit, "limit", "funnel 100, 100/s", "what all servers together admit")
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
	if c.Policy, err = s.limit(); err != nil {
		return c, err
	}
	c.Name = "example"
	c.Redis = rueidis.ClientOption{InitAddress: []string{redis}}
	c.Servers = servers
	return c, nil
}

func notOne[T any](name, value string, of map[string]T) error {
	return fmt.Errorf("-%s %q is none of %s", name, value, strings.Join(slices.Sorted(maps.Keys(of)), ", "))
}

// limit reads the limit. The page compares what is admitted with the bound of a funnel.
func (s *settings) limit() (policy.Policy, error) {
	limit, err := policy.Parse(s.Limit)
	switch {
	case err != nil:
		return nil, fmt.Errorf("-limit: %w", err)
	case !strings.HasPrefix(limit.String(), "funnel "):
		return nil, fmt.Errorf("-limit %q is not a funnel, such as funnel 100, 100/s", s.Limit)
	}
	return limit, nil
}
