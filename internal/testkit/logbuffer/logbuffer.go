// Package logbuffer keeps, in tests, a log that several goroutines write.
package logbuffer

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Buffer is a log in memory. The zero Buffer is empty. Any number of goroutines may call its
// methods.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *Buffer) Write(buffer []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(buffer)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Logger returns a logger of text lines to the buffer, at slog.LevelInfo.
func (b *Buffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Lines returns the lines without their ends; none for an empty buffer.
func (b *Buffer) Lines() []string { return lines(b.String()) }

// Drain returns the lines and empties the buffer.
func (b *Buffer) Drain() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text.String()
	b.text.Reset()
	return lines(text)
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
