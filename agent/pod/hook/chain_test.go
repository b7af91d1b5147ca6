package hook_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/hook"
)

// A releaser is a hook that records its calls. If hangs is true, it waits until its context ends.
type releaser struct {
	name  string
	hangs bool
	done  *[]string
}

func (r releaser) Name() string { return r.name }

func (r releaser) Release(ctx context.Context, _ types.UID) error {
	if r.hangs {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	*r.done = append(*r.done, r.name)
	return nil
}

func (r releaser) Ended(ctx context.Context, pod *v1.Pod) error { return r.Release(ctx, pod.UID) }

// TestHookThatHangs checks that a hook which uses its whole time limit does not shorten the time limit of the next hooks, and that all
// hooks end with the caller's context.
func TestHookThatHangs(t *testing.T) {
	var done []string
	c := hook.Chain{
		releaser{"first", false, &done}, releaser{"hangs", true, &done}, releaser{"second", false, &done},
		releaser{"hangs too", true, &done}, releaser{"last", false, &done},
	}
	for name, step := range map[string]func(context.Context) error{
		"ended":   func(ctx context.Context) error { return c.Ended(ctx, &v1.Pod{}) },
		"release": func(ctx context.Context) error { return c.Release(ctx, "uid") },
	} {
		synctest.Test(t, func(t *testing.T) {
			done = nil
			if err := step(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(done, []string{"last", "second", "first"}) {
				t.Errorf("%s: released %q: %v", name, done, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			done = nil
			if err := step(ctx); !errors.Is(err, context.Canceled) || len(done) != 0 {
				t.Errorf("%s: released %q after the end: %v", name, done, err)
			}
		})
	}
}
