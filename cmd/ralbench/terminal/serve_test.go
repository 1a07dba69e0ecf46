package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
)

func TestTablesOfServers(t *testing.T) {
	for _, width := range []int{80, 200} {
		var text strings.Builder
		require.NoError(t, Write(&text, reporttest.Servers(), width))
		for line := range strings.Lines(text.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
		}
		for _, want := range []string{
			`(?m)^serve-tcp: one command at a time$`,
			`(?m)^ rald +70\.0k +14\.3% +1\.00 +500µs +1\.00ms +13\.0µs *$`,
			`(?m)^ Redis, Lua GCRA +35\.0k +0\.0% +0\.50 +800µs +- +- *$`,
		} {
			assert.Regexp(t, want, text.String())
		}
		if width == 200 {
			assert.Regexp(t, `(?m)^ rald +requests a second, times those of Redis, Lua GCRA +serve-tcp +1\.90 +1\.80 to 2\.00 +at least 2 +NO *$`, text.String())
		}
	}
}
