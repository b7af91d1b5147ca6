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

// digest returns a hash of credentials.
func digest(all []keyring.Credential) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range all {
		a := c.Auth
		fmt.Fprintf(h, "%q %q %q %q %q\n", a.Username, a.Password, a.Auth, a.IdentityToken, a.RegistryToken)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// pullNow pulls an image, and has the verifier record the credential that was used before any pod uses the image. It
// returns a panic as an error: it runs in a goroutine of its own.
func (m *images) pullNow(ctx context.Context, name string, k keyring.Credentials) (r *api.PullImageResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("image pull panicked", "image", name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("pull panicked: %v", p)
		}
	}()
	private := k.Private()
	if err := m.verifier.BeginPull(ctx, name, private); err != nil {
		return nil, err
	}
	after := context.WithoutCancel(ctx) // the pull is recorded also if no caller waits any more
	r, with, err := m.tryAll(ctx, name, k)
	if err != nil {
		m.verifier.RecordFailure(after, name, private, ctx.Err() != nil || unreachable(err))
		return nil, err
	}
	m.verifier.RecordPull(after, name, r.GetImageRef(), private, with)
	return r, nil
}

// tryAll pulls with each of the known credentials, then with those of plugins, and then without any, until one pull
// succeeds or the registry cannot be reached. A plugin is not run for a registry that cannot be reached: if the node
// has the image, and so could start the container without the registry, the first pull is without a credential.
func (m *images) tryAll(
	ctx context.Context, name string, k keyring.Credentials,
) (r *api.PullImageResponse, with keyring.Credential, err error) {
	var errs []error
	try := func(all ...keyring.Credential) (done bool) {
		for _, with = range all {
			r, err = m.svc.PullImage(ctx, &api.PullImageRequest{Image: &api.ImageSpec{Image: name}, Auth: with.Auth})
			if err == nil || unreachable(err) || ctx.Err() != nil {
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
		image, _ := m.present(ctx, name)
		if image != nil && len(k.Has) == 0 && try(nobody) && (err == nil || noConnection(err) || ctx.Err() != nil) {
			return r, with, err
		}
		errs = nil
		given, failed := k.Ask(ctx)
		if failed != nil && ctx.Err() == nil {
			m.log.Warn("a credential provider plugin failed", "image", name, "error", failed)
		}
		done := try(given...)
		if failed != nil {
			errs = append(errs, failed) // the pod's event has it, if the pull fails
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

// noConnection reports whether no connection to the registry could be made.
func noConnection(err error) bool {
	_, is := errors.AsType[net.Error](err)
	return is || strings.Contains(err.Error(), "dial tcp")
}
