package child

import "syscall"

// dieTogether makes a process end when this one does. It has a process group of its
// own, so that a Ctrl-C reaches this one only, which then ends it in order.
func dieTogether() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
