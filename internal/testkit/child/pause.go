//go:build unix

package child

import "syscall"

// Pause stops the server until Resume, Kill or Close. The kernel still accepts connections and
// data. The server must have been started.
func (s *Redis) Pause() error { return s.process.Load().Signal(syscall.SIGSTOP) }

// Resume continues the server, with the data that came meanwhile.
func (s *Redis) Resume() error { return s.process.Load().Signal(syscall.SIGCONT) }
