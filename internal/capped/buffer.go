package capped

import "sync"

// A Buffer is an io.WriteCloser that keeps the first Max bytes that are written to it and discards the rest. A write never fails.
// Its methods may be called at the same time, because package os/exec may still copy the output of a killed program after Wait has
// returned.
//
// Buffer does not embed a bytes.Buffer: io.Copy would call the method ReadFrom, which reads without a limit.
type Buffer struct {
	Max int // bytes

	mu  sync.Mutex
	b   []byte
	cut bool
}

// Write implements io.Writer.
func (c *Buffer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fits := p[:min(len(p), max(0, c.Max-len(c.b)))]
	c.b = append(c.b, fits...)
	c.cut = c.cut || len(fits) < len(p)
	return len(p), nil
}

// Close implements io.Closer. It does nothing.
func (c *Buffer) Close() error { return nil }

// Bytes returns the kept bytes. The caller must not change them.
func (c *Buffer) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b[:len(c.b):len(c.b)]
}

// String returns the kept bytes as text.
func (c *Buffer) String() string { return string(c.Bytes()) }

// Truncated reports whether bytes were discarded.
func (c *Buffer) Truncated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}
