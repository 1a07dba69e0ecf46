package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
)

// onSocket stands before the path of a Unix socket.
const onSocket = "unix:"

// listen listens on the socket passed for the flag, or on the flag's address, with TLS if there is
// a certificate. It accepts only clients of the networks from other machines, if any are named.
func listen(flag, address string, certificate *tls.Config, clients networks, log *slog.Logger) (net.Listener, error) {
	listener, err := passed().take(flag), error(nil)
	if path, ok := strings.CutPrefix(address, onSocket); listener == nil && ok {
		listener, err = listenOnSocket(path)
	} else if listener == nil {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	listener = guard(listener, flag, clients, log)
	if certificate != nil {
		listener = tls.NewListener(listener, certificate)
	}
	return listener, nil
}

// listenOnSocket listens on a Unix socket. It replaces a killed server's socket.
func listenOnSocket(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) || !isAbandoned(path) {
		return listener, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

func isAbandoned(path string) bool {
	// a connection to any other file is refused, too
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// isSafe refuses an address that other machines reach, unless it is guarded.
func isSafe(flag, address string, guarded bool, guards string) error {
	if at, ok := passed().address(flag); ok {
		flag, address = "the socket in place of "+flag, at.String()
		if at.Network() == "unix" {
			// The socket's permissions guard it.
			return nil
		}
	}
	if path, ok := strings.CutPrefix(address, onSocket); ok {
		if path == "" {
			return fmt.Errorf("%s is %q: the path of a socket is missing", flag, address)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s is %q: host:port or %spath is accepted: %w", flag, address, onSocket, err)
	}
	if guarded || isLoopback(address) {
		return nil
	}
	return fmt.Errorf("%s is %q, which other machines may reach: set %s, or listen on 127.0.0.1", flag, address, guards)
}

func isLoopback(address string) bool {
	if strings.HasPrefix(address, onSocket) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
