package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

const (
	// firstWords is the time for which listen waits for Redis to say that it refuses a client. Redis says so
	// before the client writes anything. A client that writes at that moment often sees only a lost connection.
	firstWords = 200 * time.Millisecond
	// handshake bounds the time of the test whether Redis speaks TLS.
	handshake = time.Second
)

// Connecting returns an error that says why a client could not be made, and wraps err. If err does not
// tell the reason, Connecting listens like WhyRefused, for at most firstWords + handshake.
func Connecting(ctx context.Context, clientOption rueidis.ClientOption, err error) error {
	why := named(err)
	if why == nil && (lost(err) || mute(err)) {
		why = listen(ctx, clientOption)
	}
	if why == nil {
		why = ErrAsking
	}
	return fmt.Errorf("%w (connecting: %w)", why, err)
}

// WhyRefused returns the reason that Redis takes no connection. It returns nil if err is not a lost
// connection, or if Redis does not say. It connects to the first address and listens: for a refusal, for a mismatch of TLS,
// and for an untrusted certificate.
func WhyRefused(ctx context.Context, clientOption rueidis.ClientOption, err error) error {
	if named(err) != nil || !lost(err) {
		return nil
	}
	if why := listen(ctx, clientOption); why != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return nil
}

// lost reports whether the connection was lost, so that Redis may have said why before it closed it.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// mute reports whether Redis gave no answer that the client understands, as with a mismatch of TLS.
func mute(err error) bool {
	var record tls.RecordHeaderError
	var network net.Error
	return errors.As(err, &record) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// listen connects to Redis, and returns the reason that Redis refuses clients, or nil.
func listen(ctx context.Context, clientOption rueidis.ClientOption) error {
	ctx, cancel := context.WithTimeout(ctx, firstWords+handshake)
	defer cancel()
	byTLS := clientOption.TLSConfig
	clientOption.TLSConfig = nil
	conn, err := Dial(ctx, clientOption)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if words := hear(conn); words != "" {
		if why := nameOf(words); why != nil {
			return fmt.Errorf("%w: it says %s", why, quoted(words))
		}
		return fmt.Errorf("%w: it says %s", ErrAsking, quoted(words))
	}
	if byTLS != nil {
		if _, err := io.WriteString(conn, "PING\r\n"); err == nil && hear(conn) != "" {
			return ErrPlain
		}
		clientOption.TLSConfig = byTLS
		trusted, err := Dial(ctx, clientOption)
		if err == nil {
			_ = trusted.Close()
		}
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return fmt.Errorf("%w: %w", ErrAsking, untrusted)
		}
		return nil
	}
	// This only tests whether Redis speaks TLS, so the certificate does not matter.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	var alert tls.AlertError
	if err == nil || errors.As(err, &alert) {
		return ErrSpeaksTLS
	}
	return nil
}

// Dial connects to the first address like a client of clientOption.
func Dial(ctx context.Context, clientOption rueidis.ClientOption) (net.Conn, error) {
	addr := clientOption.InitAddress[0]
	switch {
	case clientOption.DialCtxFn != nil:
		return clientOption.DialCtxFn(ctx, addr, &clientOption.Dialer, clientOption.TLSConfig)
	case clientOption.DialFn != nil:
		return clientOption.DialFn(addr, &clientOption.Dialer, clientOption.TLSConfig)
	case clientOption.TLSConfig != nil:
		return (&tls.Dialer{NetDialer: &clientOption.Dialer, Config: clientOption.TLSConfig}).DialContext(ctx, "tcp", addr)
	}
	return clientOption.Dialer.DialContext(ctx, "tcp", addr)
}

// hear returns the first line that Redis sends, without its leading + or -. It returns "" if there is no such line.
func hear(conn net.Conn) string {
	_ = conn.SetReadDeadline(time.Now().Add(firstWords))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	buffer := make([]byte, 512)
	n, _ := conn.Read(buffer)
	line, _, _ := strings.Cut(string(buffer[:n]), "\r\n")
	if line == "" || line[0] != '-' && line[0] != '+' {
		return ""
	}
	return line[1:]
}
