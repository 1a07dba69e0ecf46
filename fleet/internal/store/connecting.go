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
	// firstWords is how long a Redis may take to say that it refuses a client. It says so before it
	// is asked. A client that writes at the same moment often sees only a lost connection.
	firstWords = 200 * time.Millisecond
	// handshake bounds the test whether a Redis speaks TLS.
	handshake = time.Second
)

// Connecting wraps why a client could not be made. If err does not say, it listens like WhyRefused,
// for at most firstWords + handshake.
func Connecting(ctx context.Context, o rueidis.ClientOption, err error) error {
	why := named(err)
	if why == nil && (lost(err) || mute(err)) {
		why = listen(ctx, o)
	}
	if why == nil {
		why = ErrAsking
	}
	return fmt.Errorf("%w (connecting: %w)", why, err)
}

// WhyRefused returns why Redis takes no connection, or nil if err is no lost connection or Redis
// does not say. It connects to the first address and listens: for a refusal, for a mismatch of TLS,
// and for an untrusted certificate.
func WhyRefused(ctx context.Context, o rueidis.ClientOption, err error) error {
	if named(err) != nil || !lost(err) {
		return nil
	}
	if why := listen(ctx, o); why != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return nil
}

// lost reports whether Redis may have said why and hung up.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// mute reports whether Redis may not understand the client.
func mute(err error) bool {
	var record tls.RecordHeaderError
	var network net.Error
	return errors.As(err, &record) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// listen returns why Redis refuses clients, or nil.
func listen(ctx context.Context, o rueidis.ClientOption) error {
	ctx, cancel := context.WithTimeout(ctx, firstWords+handshake)
	defer cancel()
	byTLS := o.TLSConfig
	o.TLSConfig = nil
	conn, err := Dial(ctx, o)
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
		o.TLSConfig = byTLS
		trusted, err := Dial(ctx, o)
		if err == nil {
			_ = trusted.Close()
		}
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return fmt.Errorf("%w: %w", ErrAsking, untrusted)
		}
		return nil
	}
	// The certificate does not matter here.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	var alert tls.AlertError
	if err == nil || errors.As(err, &alert) {
		return ErrSpeaksTLS
	}
	return nil
}

// Dial connects to the first address like a client of o.
func Dial(ctx context.Context, o rueidis.ClientOption) (net.Conn, error) {
	addr := o.InitAddress[0]
	switch {
	case o.DialCtxFn != nil:
		return o.DialCtxFn(ctx, addr, &o.Dialer, o.TLSConfig)
	case o.DialFn != nil:
		return o.DialFn(addr, &o.Dialer, o.TLSConfig)
	case o.TLSConfig != nil:
		return (&tls.Dialer{NetDialer: &o.Dialer, Config: o.TLSConfig}).DialContext(ctx, "tcp", addr)
	}
	return o.Dialer.DialContext(ctx, "tcp", addr)
}

// hear returns the first line that Redis says, without its sign, or "".
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
