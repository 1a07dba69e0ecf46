package peers

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/ral-limiter/ral/bench"
)

//go:embed floor/floor.c
var cFloorSource []byte

// CFloor returns the floor without a language runtime: a program in C on one hot key. Its cost does
// not depend on how Go, or any peer, is written.
func CFloor() bench.Contender {
	return bench.Contender{
		Name: bench.CFloorName, Yardstick: bench.YardstickC,
		About: "hash + open table + processor's counter + compare-and-swap on a hot key, in C; no limiter",
		Needs: func(w bench.Workload) bool { return w.Keys == 1 && !w.AuditOnly && w.Draw.KeepsLimiter() },
		Measure: func(_ context.Context, workload bench.Workload, duration time.Duration) (measured bench.Measured, err error) {
			floor, err := startCFloor()
			if err != nil {
				return measured, err
			}
			pass := &measured.Pass
			_, err = fmt.Fprintln(floor, workload.Callers, duration.Nanoseconds(), int(workload.Refused))
			if err == nil {
				_, err = fmt.Fscanln(floor, &pass.Calls, &pass.Passed, &pass.Elapsed, &pass.CPU)
			}
			return measured, err
		},
	}
}

// BuildCFloor builds the program of CFloor. The error says why there is none.
func BuildCFloor() error {
	_, err := startCFloor()
	return err
}

// startCFloor builds and starts the program, which ends with this process, as its input ends then.
var startCFloor = sync.OnceValues(func() (conn io.ReadWriter, err error) {
	folder, err := os.MkdirTemp("", "ralbench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	program := filepath.Join(folder, "floor")
	build := exec.Command("cc", "-O2", "-pthread", "-x", "c", "-o", program, "-")
	build.Stdin = bytes.NewReader(cFloorSource)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("it needs a C compiler: %w %s", err, out)
	}
	floor := exec.Command(program)
	in, err1 := floor.StdinPipe()
	out, err2 := floor.StdoutPipe()
	return struct {
		io.Reader
		io.Writer
	}{out, in}, errors.Join(err1, err2, floor.Start())
})
