//go:build unix

package redistest

import "syscall"

// Pause has the server stand still: what connects to it, and what is sent, is taken by
// the kernel, and nothing is answered, until Resume or Close.
func (s *Server) Pause() error { return s.process.Signal(syscall.SIGSTOP) }

// Resume has it go on with what came meanwhile.
func (s *Server) Resume() error { return s.process.Signal(syscall.SIGCONT) }
