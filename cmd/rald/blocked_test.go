package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// It would block its reader. It is a fault of the configuration, and the server goes on.
func TestPipeInPlaceOfAFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte("limits:\n  api: funnel 5, 1/d\n"), 0o600))
	s := start(t, "-state", filepath.Join(t.TempDir(), "state"), dir)
	require.NoError(t, syscall.Mkfifo(file+".new", 0o600))
	require.NoError(t, os.Rename(file+".new", file))
	s.untilLogs(t, "it is no regular file")
	s.end(t)
	assert.Contains(t, s.log.String(), "rald saves its state and ends")
	err := run(t.Context(), []string{"check", dir}, noEnv, s.log, s.log)
	assert.EqualError(t, err, file+": it is no regular file, which alone is accepted")
}

// They are no longer put in force. A start that reads for ever can be ended, too.
func TestEndDoesNotWaitForFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "check.yaml"), []byte("proxy: caddy\nrules: []\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "envoy"), 0o700))
	r, _, _ := reloaderOf(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte("limits:\n  api: funnel 5, 1/d\n"), 0o600))
	c, err := r.dirs.Read()
	require.NoError(t, err)
	r.end()
	r.put(c, nil)
	assert.Empty(t, r.limits.All())

	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan struct{})
	defer close(blocked)
	_, err = readUntil(ctx, func() (*configdir.Config, error) {
		cancel()
		<-blocked
		return nil, nil
	})
	assert.ErrorIs(t, err, context.Canceled)
}
