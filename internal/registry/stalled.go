package registry

import (
	"context"
	"io"
	"time"
)

// A watch cancels the context of a transfer that makes no progress, or whose average rate is too low.
type watch struct {
	ctx    context.Context // of the transfer, which ends at Close
	cancel context.CancelCauseFunc
	stall  time.Duration
	idle   *time.Timer
	all    *time.Timer
}

// watch returns the watch for a transfer of size bytes.
func (c *Client) watch(ctx context.Context, size int64) *watch {
	w := &watch{stall: c.stall}
	w.ctx, w.cancel = context.WithCancelCause(withoutLog(ctx))
	w.idle = time.AfterFunc(graceStall*c.stall, func() { w.cancel(ErrStalled) }) // the first bytes may need several requests
	w.all = time.AfterFunc(2*graceStall*c.stall+time.Duration(size/minRate)*time.Second, func() { w.cancel(errSlow) })
	return w
}

// moved restarts the timer for transfers without progress.
func (w *watch) moved() { w.idle.Reset(w.stall) }

// Close ends the transfer.
func (w *watch) Close() error {
	w.idle.Stop()
	w.all.Stop()
	w.cancel(nil)
	return nil
}

// A watchedReader is the body of a download.
type watchedReader struct {
	io.ReadCloser
	watch  *watch
	client *Client
}

func (r *watchedReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if n > 0 {
		r.watch.moved()
	}
	if err != nil && err != io.EOF {
		err = r.client.explain(r.watch.ctx, err)
	}
	return n, err
}

func (r *watchedReader) Close() error {
	err := r.ReadCloser.Close()
	_ = r.watch.Close()
	return err
}
