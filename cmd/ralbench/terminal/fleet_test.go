package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
)

func TestTablesOfFleetMode(t *testing.T) {
	p := printer{Document: reporttest.Tables(), width: 200}
	p.fleet()
	for _, want := range []string{
		`(?m)^fleet mode on Redis 7\.0\.15, started for this run`,
		`(?m)^ Ral fleet exact +speed +fleet-hot +2\.50 +2\.00 to 3\.00 +at least 2 +yes\s*$`,
		`(?m)^ Ral fleet exact +memory +10 keys +1\.00 +- +less than 1 +NO\s*$`,
		`(?m)^ Ral fleet leased +cost +fleet-hot +1\.00 +- +at most 2 +yes\s*$`,
		`(?m)^ Ral fleet leased +share +even +95\.1% +- +at least 95% +yes\s*$`,
		`(?m)^ fleet-hot +redis_rate +10000 +- +22000 +all +- +-\s*$`,
		`(?m)^  +Ral fleet exact +7500 +±20% +14500 +99\.9% +0\.0% +0\.1%\s*$`,
		`(?m)^ fleet-keys +Ral fleet leased +0\.00 +- +- +0\.0% +100\.0% +0\.0%\s*$`,
		`(?m)^ Ral fleet exact +ral:x +10,000 +88\.0 +154\s*$`,
		`(?m)^ funnel 1000, 1000/s +even +leased +4,000 +1,900 +2,000 +95\.0% +95\.0% +kept +900 1000\s*$`,
		`(?m)^ funnel 1000, 1000/s +even +exact +4,000 +2,001 +2,000 +100\.2% +95\.0% +1 TOO MANY; 7 answered by neither +1 2000\s*$`,
	} {
		assert.Regexp(t, want, p.String())
	}

	p = printer{Document: reporttest.Tables(), width: 80}
	p.fleet()
	for line := range strings.Lines(p.String()) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 80, line)
	}
}
