package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Memory and files are within the bounds of docs/serving.md.
func TestSizing(t *testing.T) {
	keys := 1_000_000
	if testing.Short() || race.Enabled {
		keys = 20_000
	}
	state := t.TempDir()
	a := &attacked{t: t, admin: freeAddr(t)}
	a.server = start(t, "-state", state, "-save-every", "1h", "-admin", a.admin)
	empty, goroutines := a.held(), a.figure("go_goroutines")
	t.Logf("rald without keys: %.1f MB in memory", a.figure("process_resident_memory_bytes")/1e6)

	const families = 16
	for i := range families {
		tool(t, a.server, "redis-cli", "RAL.TAKE", "k", fmt.Sprintf("window_5/%dh", i+2))
	}
	ofEngine := (a.held() - empty) / families
	t.Logf("a family of limits: %.0f KB, %.1f goroutines", ofEngine/1e3, (a.figure("go_goroutines")-goroutines)/families)
	assert.Less(t, ofEngine, 1e6)

	c, err := net.Dial("tcp", a.addr)
	require.NoError(t, err)
	defer c.Close()
	before := a.held()
	go func() {
		out := bufio.NewWriter(c)
		for i := range keys {
			_, _ = fmt.Fprintf(out, "CL.THROTTLE user:%015d 15 1 3600\r\n", i) // 20 bytes
		}
		_ = out.Flush()
	}()
	_, err = io.CopyN(io.Discard, c, int64(keys*len("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:3600\r\n")))
	require.NoError(t, err)
	ofKey := (a.held() - before) / float64(keys)
	t.Logf("a key of 20 bytes: %.0f bytes of %d keys", ofKey, keys)
	assert.Equal(t, fmt.Sprintf("%d\n", keys+families), tool(t, a.server, "redis-cli", "DBSIZE"))
	assert.Less(t, ofKey, 400.0)

	a.end(t)
	files, err := filepath.Glob(filepath.Join(state, "funnel*.state"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	saved := float64(info.Size()) / float64(keys)
	t.Logf("a saved key: %.1f bytes", saved)
	assert.Less(t, saved, 60.0)
}
