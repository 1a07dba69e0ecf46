package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// maxAside bounds the bytes read of a refusal's body, to use its connection again.
	maxAside = 64 << 10
	// asideTimeout bounds the time for reading them.
	asideTimeout = time.Second
)

// SetAside replaces the body by its content and closes it. It reports false if the body is too long
// or too slow; the response then still has all of it.
func SetAside(ctx context.Context, resp *http.Response) bool {
	// net/http allows a response without a body.
	if resp.Body == nil {
		return true
	}
	aside, whole := readAside(ctx, resp.Body, maxAside)
	if resp.Body = aside; whole {
		_ = aside.from.Close()
		resp.Body = io.NopCloser(&aside.read)
	}
	return whole
}

// readAside reads a body until it is longer than maxBytes or takes too long, and reports whether that
// was all of it.
func readAside(ctx context.Context, body io.ReadCloser, maxBytes int) (b *aside, whole bool) {
	b = &aside{from: body, maxBytes: maxBytes, done: make(chan struct{})}
	go b.fill()
	late := time.NewTimer(asideTimeout)
	defer late.Stop()
	select {
	case <-b.done:
	case <-late.C:
	case <-ctx.Done():
	}
	return b, b.stop()
}

// aside is a body with its beginning read by a goroutine.
type aside struct {
	from     io.ReadCloser
	maxBytes int
	stopped  atomic.Bool

	// done is closed when the goroutine has ended and the reader owns read and err.
	done chan struct{}
	read bytes.Buffer
	// err is the body's error, and io.EOF at its end.
	err error
}

// fill reads until the body ends, is too long, or stop is called. Close ends a blocked Read.
func (b *aside) fill() {
	defer close(b.done)
	var chunk [4 << 10]byte
	for !b.stopped.Load() && b.err == nil && b.read.Len() <= b.maxBytes {
		var n int
		n, b.err = b.from.Read(chunk[:min(len(chunk), b.maxBytes+1-b.read.Len())])
		b.read.Write(chunk[:n])
	}
}

// stop ends fill after the present Read, and reports whether the whole body was read.
func (b *aside) stop() (whole bool) {
	b.stopped.Store(true)
	select {
	case <-b.done:
		return b.err == io.EOF && b.read.Len() <= b.maxBytes //nolint:errorlint // as io.Reader has it
	default:
		return false
	}
}

func (b *aside) Read(buffer []byte) (int, error) {
	<-b.done
	switch {
	case b.read.Len() > 0:
		return b.read.Read(buffer)
	case b.err != nil:
		return 0, b.err
	}
	return b.from.Read(buffer)
}

// Close implements io.Closer. It does not wait for a blocked Read, and ends it if the body can.
func (b *aside) Close() error { return b.from.Close() }

// maxPeek bounds the bytes of a body that may tell of a refusal.
const maxPeek = 4 << 10

// PeekJSON reads the JSON of a response's body into v, as json.Unmarshal does, and leaves the body
// whole. It reports false if the body is no JSON, is longer than 4 KiB, or takes longer than a second.
// Parts of the JSON that have another type than in v are left out.
func PeekJSON(resp *http.Response, v any) bool {
	if resp.Body == nil || resp.ContentLength > maxPeek {
		return false
	}
	ctx := context.Background()
	if resp.Request != nil {
		ctx = resp.Request.Context()
	}
	aside, whole := readAside(ctx, resp.Body, maxPeek)
	if resp.Body = aside; !whole {
		return false
	}
	err := json.Unmarshal(aside.read.Bytes(), v)
	var otherType *json.UnmarshalTypeError
	return err == nil || errors.As(err, &otherType)
}
