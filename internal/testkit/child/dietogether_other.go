//go:build !linux

package child

import "syscall"

// dieTogether has no means here but the process group that both are in, to all of which
// a terminal sends a Ctrl-C.
func dieTogether() *syscall.SysProcAttr { return nil }
