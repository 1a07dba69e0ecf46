//go:build unix && !linux

package main

import "syscall"

// dieTogether has no means here to make a process end when this one is killed. It gives
// it a process group of its own, so that a Ctrl-C reaches this one only, which then ends
// it in order.
func dieTogether() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
