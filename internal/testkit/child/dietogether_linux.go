package child

import "syscall"

// dieTogether makes a process end when this process does. It has a process group of its own, so
// that this process gets a Ctrl-C and ends it in order.
func dieTogether() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
