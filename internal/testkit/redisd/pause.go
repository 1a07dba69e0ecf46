//go:build unix

package redisd

import "syscall"

// Pause has the server stand still: what connects to it, and what is sent, is taken by
// the kernel, and nothing is answered, until Resume, Kill or Close. The server must have
// been started, as by Open.
func (s *Server) Pause() error { return s.process.Load().Signal(syscall.SIGSTOP) }

// Resume has it go on with what came meanwhile.
func (s *Server) Resume() error { return s.process.Load().Signal(syscall.SIGCONT) }
