package redistest

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var usedProcessor = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)

// ProcessorTime returns how much of a processor the Redis has used.
func (s *Server) ProcessorTime(t testing.TB) (d time.Duration) {
	t.Helper()
	reply := s.Do(t, "INFO", "cpu")
	text, err := reply.ToString()
	require.NoError(t, err)
	for _, found := range usedProcessor.FindAllStringSubmatch(text, -1) {
		used, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		d += time.Duration(used * float64(time.Second))
	}
	return d
}
