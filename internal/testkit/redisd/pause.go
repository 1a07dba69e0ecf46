//go:build unix

package redisd

import "syscall"

// Pause stops the server until Resume, Kill or Close. The kernel still accepts connections and
// data. The server must have been started.
func (s *Server) Pause() error { return s.process.Load().Signal(syscall.SIGSTOP) }

// Resume continues the server, with the data that came meanwhile.
func (s *Server) Resume() error { return s.process.Load().Signal(syscall.SIGCONT) }
