package engine

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/policy"
)

var killsFlag = flag.Int("kills", 5, "how many processes TestKilledProcessForgivesOnlyUnitsAfterItsLastSave kills")

// killedKeys is the number of keys, killedDepth their capacity. Next to nothing drains.
const (
	killedKeys  = 64
	killedDepth = 100_000
)

func killedConfig(path string) Config {
	return Config{
		Policy: policy.Must(policy.Funnel(killedDepth, 1, time.Hour)),
		State:  State{Path: path, Every: 3 * time.Millisecond},
	}
}

// A process is killed under load, while it saves as often as it can. Of each key, the file has all
// units that were taken before the last save began, and none that was not asked for. The next
// process goes on with the file, and is killed too.
//
// Promise: A killed process forgives a key at most its takes since the last save began.
func TestKilledProcessForgivesOnlyUnitsAfterItsLastSave(t *testing.T) {
	if folder := os.Getenv("RAL_TO_BE_KILLED"); folder != "" {
		takeUntilKilled(t, folder)
		return
	}
	folder := t.TempDir()
	for round := range *killsFlag {
		before := usedOf(t, folder)
		took := filepath.Join(folder, "took")
		_ = os.Remove(took)
		command := exec.Command(os.Args[0], "-test.run=^TestKilledProcessForgivesOnlyUnitsAfterItsLastSave$")
		command.Env = append(os.Environ(), "RAL_TO_BE_KILLED="+folder)
		out, err := command.StdoutPipe()
		require.NoError(t, err)
		process, err := child.Start(command)
		require.NoError(t, err)
		saves := bufio.NewReader(out)
		for range 1 + rand.IntN(8) {
			_, err = saves.ReadString('\n')
			require.NoError(t, err)
		}
		process.Kill()
		<-process.Ended()

		saved, all := tookOf(t, took)
		after := usedOf(t, folder)
		for key := range killedKeys {
			used := after[key] - before[key]
			require.GreaterOrEqual(t, used, saved[key], "round %d: units of key %d are forgiven that were taken before the last save", round, key)
			require.LessOrEqual(t, used, all[key]+4, "round %d: key %d is charged for units that were not taken", round, key)
		}
	}
}

// usedOf returns the units of each key in a folder's file.
func usedOf(t *testing.T, folder string) (used [killedKeys]int64) {
	t.Helper()
	e, err := New[int](killedConfig(filepath.Join(folder, "state")))
	require.NoError(t, err)
	for key := range used {
		used[key] = killedDepth - e.Peek(key, 0).Remaining
	}
	require.NoError(t, e.Close())
	return used
}

// tookRecord is the size of a record: a key and the time of its take, or -1 and the beginning of a
// save.
const tookRecord = 16

// tookOf counts the units of each key that were taken before the last save began, and all.
func tookOf(t *testing.T, path string) (saved, all [killedKeys]int64) {
	t.Helper()
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	last := int64(0)
	each := func(f func(key, at int64)) {
		for i := 0; i+tookRecord <= len(file); i += tookRecord {
			f(int64(binary.LittleEndian.Uint64(file[i:])), int64(binary.LittleEndian.Uint64(file[i+8:])))
		}
	}
	each(func(key, at int64) {
		if key < 0 {
			last = max(last, at)
		}
	})
	require.Positive(t, last, "no state was saved, so the test tests nothing")
	each(func(key, instant int64) {
		if key >= 0 {
			all[key]++
			if instant < last {
				saved[key]++
			}
		}
	})
	return saved, all
}

// takeUntilKilled records takes on four goroutines, and prints a line after each recorded save.
func takeUntilKilled(t *testing.T, folder string) {
	e, err := New[int](killedConfig(filepath.Join(folder, "state")))
	require.NoError(t, err)
	file, err := os.OpenFile(filepath.Join(folder, "took"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	note := func(key int64, instant time.Time) {
		var record [tookRecord]byte
		binary.LittleEndian.PutUint64(record[:], uint64(key))
		binary.LittleEndian.PutUint64(record[8:], uint64(instant.UnixNano()))
		_, _ = file.Write(record[:])
	}
	for range 4 {
		go func() {
			for {
				if key := rand.IntN(killedKeys); e.Choke(key) {
					note(int64(key), time.Now())
				}
			}
		}()
	}
	for last := (time.Time{}); ; runtime.Gosched() {
		if at := e.Stats().SavedAt; !at.Equal(last) {
			last = at
			note(-1, at)
			fmt.Fprintln(os.Stdout, "saved")
		}
	}
}
