package terminal

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func TestTablesOfFleetModeAndOfServers(t *testing.T) {
	for _, c := range []struct {
		d    report.Document
		want []string
	}{
		{reporttest.Tables(), []string{
			`^fleet mode on Redis 7\.0\.15, started for this run`,
			`^ Ral fleet exact +speed +fleet-hot +2\.50 +2\.00 to 3\.00 +at least 2 +yes\s*$`,
			`^ Ral fleet exact +memory +10 keys +1\.00 +- +less than 1 +NO\s*$`,
			`^ Ral fleet leased +cost +fleet-hot +1\.00 +- +at most 2 +yes\s*$`,
			`^ Ral fleet leased +share +even +95\.1% +- +at least 95% +yes\s*$`,
			`^ fleet-hot +redis_rate +10000 +- +22000 +all +- +-\s*$`,
			`^  +Ral fleet exact +7500 +±20% +14500 +99\.9% +0\.0% +0\.1%\s*$`,
			`^ fleet-keys +Ral fleet leased +0\.00 +- +- +0\.0% +100\.0% +0\.0%\s*$`,
			`^ Ral fleet exact +ral:x +10,000 +88\.0 +154\s*$`,
			`^ funnel 1000, 1000/s +even +leased +4,000 +1,900 +2,000 +95\.0% +95\.0% +kept +900 1000\s*$`,
			`^ funnel 1000, 1000/s +even +exact +4,000 +2,001 +2,000 +100\.2% +95\.0% +1 TOO MANY; 7 answered by neither +1 2000\s*$`,
		}},
		{reporttest.Servers(), []string{
			`^serve-tcp: one command at a time$`,
			`^ rald +70\.0k +14\.3% +1\.00 +500µs +1\.00ms +13\.0µs *$`,
			`^ Redis, Lua GCRA +35\.0k +0\.0% +0\.50 +800µs +- +- *$`,
			`^ rald +requests a second, times those of Redis, Lua GCRA +serve-tcp +1\.90 +1\.80 to 2\.00 +at least 2 +NO *$`,
		}},
	} {
		assertFits(t, written(t, c.d, 80), 80)
		shown := written(t, c.d, 200)
		assertFits(t, shown, 200)
		for _, want := range c.want {
			assert.Regexp(t, `(?m)`+want, shown)
		}
	}
}
