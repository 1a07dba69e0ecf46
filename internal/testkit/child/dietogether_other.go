//go:build !linux

package child

import "syscall"

// dieTogether does nothing: both processes are in a group, to which a terminal sends a Ctrl-C.
func dieTogether(given *syscall.SysProcAttr) *syscall.SysProcAttr { return given }
