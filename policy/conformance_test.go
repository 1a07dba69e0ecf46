package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Figures of other limiters are kept here for fresh clones. A folder beside the repository that
// has them must have the same.
const (
	conformanceDir       = "testdata/conformance"
	sharedConformanceDir = "../../shared/conformance"
)

func conformance(t *testing.T, name string, into any) {
	t.Helper()
	kept, err := os.ReadFile(filepath.Join(conformanceDir, name))
	require.NoError(t, err)
	shared, err := os.ReadFile(filepath.Join(sharedConformanceDir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
		require.Equal(t, string(shared), string(kept), "%s is not the shared one any more", name)
	}
	require.NoError(t, json.Unmarshal(kept, into))
}

// engineStart is the first instant of an engine, at which the files' clocks are 0.
const engineStart policy.Instant = 1

// Spring Cloud Gateway counts whole seconds, and a funnel at whole seconds replies the same.
func TestConformsToSpringGateway(t *testing.T) {
	var file struct {
		Cases []struct {
			Rate, Capacity, Requested int64
			Seconds                   []int64    `json:"t_s"`
			Reply                     [][2]int64 // allowed, tokens left
		}
	}
	conformance(t, "spring_gateway.json", &file)
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		t.Run(fmt.Sprintf("%d of %d at %d per second", c.Requested, c.Capacity, c.Rate), func(t *testing.T) {
			require.Len(t, c.Reply, len(c.Seconds))
			p := policy.Must(policy.Funnel(c.Capacity, c.Rate, time.Second))
			var word uint64
			for i, at := range c.Seconds {
				next, d := p.Take(word, engineStart+policy.Instant(at)*policy.Instant(time.Second), c.Requested, 0)
				word = next
				assert.Equal(t, c.Reply[i], [2]int64{oneIf(d.Allowed), d.Remaining}, "at %d s", at)
			}
		})
	}
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// fromRedisCell makes the funnel of CL.THROTTLE's arguments, and returns their quantity or 1.
func fromRedisCell(t *testing.T, args string) (p policy.Policy, quantity int64) {
	t.Helper()
	var burst, count, seconds int64
	quantity = 1
	n, err := fmt.Sscan(args, &burst, &count, &seconds, &quantity)
	require.Len(t, strings.Fields(args), n, "%v", err)
	p, err = policy.Funnel(burst+1, count, time.Duration(seconds)*time.Second)
	require.NoError(t, err)
	return p, quantity
}

// Promise: Policies conform to redis-cell, Spring's gateway and Guava.
func TestConformsToRedisCell(t *testing.T) {
	var file struct {
		Sequence struct {
			Args  string
			Steps []struct {
				Millis   int64 `json:"t_ms"`
				Quantity int64
				Reply    [5]int64
			}
		}
		Fresh []struct {
			Args  string
			Reply [5]int64
		} `json:"fresh_key"`
	}
	conformance(t, "cl_throttle.json", &file)

	t.Run(file.Sequence.Args, func(t *testing.T) {
		p, _ := fromRedisCell(t, file.Sequence.Args)
		require.NotEmpty(t, file.Sequence.Steps)
		var word uint64
		for i, s := range file.Sequence.Steps {
			next, d := p.Take(word, engineStart+policy.Instant(s.Millis)*policy.Instant(time.Millisecond), s.Quantity, 0)
			word = next
			assert.Equal(t, s.Reply, d.RedisCell(), "step %d: %d at %d ms", i, s.Quantity, s.Millis)
		}
	})

	require.NotEmpty(t, file.Fresh)
	for _, c := range file.Fresh {
		t.Run("fresh "+c.Args, func(t *testing.T) {
			p, quantity := fromRedisCell(t, c.Args)
			_, d := p.Take(0, engineStart, quantity, 0)
			assert.Equal(t, c.Reply, d.RedisCell())
		})
	}
}
