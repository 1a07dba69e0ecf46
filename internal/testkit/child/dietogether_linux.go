package child

import (
	"cmp"
	"syscall"
)

// dieTogether makes a process end when this process does, and keeps its other attributes. It has a
// process group of its own, so that this process gets a Ctrl-C and ends it in order.
func dieTogether(given *syscall.SysProcAttr) *syscall.SysProcAttr {
	attributes := cmp.Or(given, &syscall.SysProcAttr{})
	attributes.Setpgid, attributes.Pdeathsig = true, syscall.SIGKILL
	return attributes
}
