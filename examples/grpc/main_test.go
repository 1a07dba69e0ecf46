package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestRunShowsEachKindOfRefusal(t *testing.T) {
	var out bytes.Buffer
	// Few units come back on a busy machine.
	require.NoError(t, run(&out, policy.Must(policy.Parse("funnel 3, 6/m"))))
	t.Log("\n" + out.String())
	all := out.String()
	assert.Equal(t, 2, strings.Count(all, ": admitted; ratelimit"))
	assert.Contains(t, all, "*errdetails.RetryInfo")
	assert.Contains(t, all, "*errdetails.QuotaFailure")
	assert.Contains(t, all, "grpc-retry-pushback-ms: -1")
	assert.Contains(t, all, "never admits this call, which costs 100")
	assert.Contains(t, all, "times: ResourceExhausted: ")
}
