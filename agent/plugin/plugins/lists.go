package plugins

import (
	"context"
	"time"
)

// listInterval is the minimum interval between two lists of a plugin.
const listInterval = 100 * time.Millisecond

// EachList passes each list of a plugin to the function take. If the plugin sends lists faster than one per
// listInterval, EachList reads them with a delay. It returns an error when the stream ends, ctx ends or take fails.
func EachList[T any](ctx context.Context, stream interface{ Recv() (*T, error) }, take func(*T) error) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		pause.Reset(listInterval)
		if err := take(list); err != nil {
			return err
		}
	}
}
