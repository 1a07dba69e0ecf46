package redisserver

import (
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

// hasKeys reports whether the keys are in this process, or writes that they are not.
func (c *conn) hasKeys(command string) bool {
	shared := c.server.config.Families.Fleet()
	if shared != nil {
		c.out.Error("ERR " + command + " is not there, as Redis keeps the keys: there, their names begin with ral:" + shared.Name + ":")
	}
	return shared == nil
}

func infoShared(keep *families.Families, line func(format string, args ...any)) {
	shared := keep.Fleet()
	mode := "exact"
	if shared.Leased {
		mode = "leased"
	}
	away, why, servers := 0, "", 0
	for family := range keep.All() {
		if err := family.Health(); err != nil && away == 0 {
			away, why = 1, strings.Join(strings.Fields(err.Error()), " ")
		}
		servers = max(servers, family.(families.InRedis).Fleet().Stats().Servers)
	}
	line("backend:redis")
	line("backend_name:%s", shared.Name)
	line("backend_mode:%s", mode)
	line("backend_outage:%s", shared.OutageName())
	line("backend_servers:%d", servers)
	line("backend_failing:%d", away)
	line("backend_error:%s", why)
	line("")
	line("# Limits")
	for family := range keep.All() {
		s := family.(families.InRedis).Fleet().Stats()
		line("%s:admitted=%d,refused=%d,redis=%d,leased=%d,share=%d,open=%d,closed=%d", strings.ReplaceAll(family.Limit().String(), " ", "_"),
			s.Admitted, s.Refused, s.Exact, s.Leased, s.Local, s.Open, s.Closed)
	}
}
