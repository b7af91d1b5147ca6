package untrusted

import (
	"context"
	"io"
)

// CancelableReader returns a reader that fails once ctx has ended, with the cause. A file may have any apparent size, because its
// holes use no space, and a small compressed file may have any content. So the reader of a file must not depend on the end of
// the file.
func CancelableReader(ctx context.Context, r io.Reader) io.Reader { return &cancelableReader{ctx, r} }

type cancelableReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelableReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
