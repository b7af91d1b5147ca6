package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Prepare calls every Preparer until one fails. The error does not contain the hook's name, because it is shown as
// the error of the pod.
func (c Chain) Prepare(ctx context.Context, pod *v1.Pod) error {
	for _, h := range c {
		if p, ok := h.(Preparer); ok {
			if err := p.Prepare(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// Start calls every Starter until one fails. The error does not contain the hook's name, because it is shown as the
// error of the container.
func (c Chain) Start(ctx context.Context, pod *v1.Pod, ctr *v1.Container) error {
	for _, h := range c {
		if s, ok := h.(Starter); ok {
			if err := s.Start(ctx, pod, ctr); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sandbox calls every SandboxHook until one fails.
func (c Chain) Sandbox(ctx context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error {
	for _, h := range c {
		if s, ok := h.(SandboxHook); ok {
			if err := s.Sandbox(ctx, pod, out); err != nil {
				return fmt.Errorf("%s: %w", h.Name(), err)
			}
		}
	}
	return nil
}

// Container calls every ContainerHook until one fails.
func (c Chain) Container(ctx context.Context, pod *v1.Pod, ct *v1.Container, out *api.ContainerConfig) error {
	for _, h := range c {
		if s, ok := h.(ContainerHook); ok {
			if err := s.Container(ctx, pod, ct, out); err != nil {
				return fmt.Errorf("%s: %w", h.Name(), err)
			}
		}
	}
	return nil
}

// Update calls every Updater until one fails.
func (c Chain) Update(ctx context.Context, pod *v1.Pod) error {
	for _, h := range c {
		if u, ok := h.(Updater); ok {
			if err := u.Update(ctx, pod); err != nil {
				return fmt.Errorf("%s: %w", h.Name(), err)
			}
		}
	}
	return nil
}

// Grow calls every Sizer until one fails. The error does not contain the hook's name, because it is shown as the
// error of the pod.
func (c Chain) Grow(ctx context.Context, pod *v1.Pod) error {
	return c.eachSizer(func(s Sizer) error { return s.Grow(ctx, pod) })
}

// Shrink calls Shrink of every Sizer until one fails. The error does not contain the hook's name.
func (c Chain) Shrink(ctx context.Context, pod *v1.Pod) error {
	return c.eachSizer(func(s Sizer) error { return s.Shrink(ctx, pod) })
}

func (c Chain) eachSizer(step func(Sizer) error) error {
	for _, h := range c {
		if s, ok := h.(Sizer); ok {
			if err := step(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseTime is the maximum time for which Ended, Unmount and Release wait for one hook.
const releaseTime = 2 * time.Minute

// Ended calls every Ender in reverse order and joins their errors. Each Ender has its own time limit, so that a hook that
// waits for another program does not prevent the release of what other hooks have prepared.
func (c Chain) Ended(ctx context.Context, pod *v1.Pod) error {
	return c.eachBackward(ctx, func(ctx context.Context, h Named) error {
		if e, ok := h.(Ender); ok {
			return e.Ended(ctx, pod)
		}
		return nil
	})
}

// Unmount calls every Unmounter in reverse order and joins their errors. Each Unmounter has its own time limit.
func (c Chain) Unmount(ctx context.Context, uid types.UID) error {
	return c.eachBackward(ctx, func(ctx context.Context, h Named) error {
		if u, ok := h.(Unmounter); ok {
			return u.Unmount(ctx, uid)
		}
		return nil
	})
}

// Release calls every Releaser in reverse order and joins their errors. Each Releaser has its own time limit.
func (c Chain) Release(ctx context.Context, uid types.UID) error {
	return c.eachBackward(ctx, func(ctx context.Context, h Named) error {
		if r, ok := h.(Releaser); ok {
			return r.Release(ctx, uid)
		}
		return nil
	})
}

func (c Chain) eachBackward(ctx context.Context, step func(context.Context, Named) error) error {
	var errs []error
	for _, h := range slices.Backward(c) {
		bounded, stop := context.WithTimeout(ctx, releaseTime)
		if err := step(bounded, h); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Name(), err))
		}
		stop()
	}
	return errors.Join(errs...)
}
