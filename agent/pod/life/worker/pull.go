package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

// digest tells one set of credentials from another.
func digest(all []keyring.Credential) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range all {
		a := c.Auth
		fmt.Fprintf(h, "%q %q %q %q %q\n", a.Username, a.Password, a.Auth, a.IdentityToken, a.RegistryToken)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// pullNow has the guard record by whose credential the image came before anybody uses it.
// It turns a panic, which nobody else could recover, into an error.
func (m *images) pullNow(ctx context.Context, name string, k keyring.Credentials) (r *api.PullImageResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("image pull panicked", "image", name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("pull panicked: %v", p)
		}
	}()
	private := k.Private()
	if err := m.guard.Begin(ctx, name, private); err != nil {
		return nil, err
	}
	after := context.WithoutCancel(ctx) // what was pulled is recorded also if nobody waits any more
	r, with, err := m.tryAll(ctx, name, k)
	if err != nil {
		m.guard.Failed(after, name, private, ctx.Err() != nil || unreachable(err))
		return nil, err
	}
	m.guard.Pulled(after, name, r.GetImageRef(), private, with)
	return r, nil
}

// tryAll tries each of the credentials at hand, then those of plugins, and then none. A
// registry that cannot be reached ends it. Nor is a plugin run for one: if the node has
// the image, and so can do without the registry, it is asked without a credential first.
func (m *images) tryAll(ctx context.Context, name string, k keyring.Credentials) (r *api.PullImageResponse, with keyring.Credential, err error) {
	var errs []error
	try := func(all ...keyring.Credential) (done bool) {
		for _, with = range all {
			if r, err = m.svc.PullImage(ctx, &api.PullImageRequest{Image: &api.ImageSpec{Image: name}, Auth: with.Auth}); err == nil || unreachable(err) || ctx.Err() != nil {
				return true
			}
			errs = append(errs, err)
		}
		return false
	}
	var nobody keyring.Credential
	if try(k.Has...) {
		return r, with, err
	}
	if k.Ask != nil {
		if image, _ := m.present(ctx, name); image != nil && len(k.Has) == 0 && try(nobody) && (err == nil || lost(err) || ctx.Err() != nil) {
			return r, with, err
		}
		errs = nil
		given, failed := k.Ask(ctx)
		if failed != nil && ctx.Err() == nil {
			m.log.Warn("a credential provider plugin failed", "image", name, "error", failed)
		}
		done := try(given...)
		if failed != nil {
			errs = append(errs, failed) // which the pod's event tells, if the pull fails
		}
		if done {
			return r, with, err
		}
	}
	if try(nobody) {
		return r, with, err
	}
	return nil, nobody, errors.Join(errs...)
}

// lost reports whether there was no way to the registry.
func lost(err error) bool {
	_, is := errors.AsType[net.Error](err)
	return is || strings.Contains(err.Error(), "dial tcp")
}
