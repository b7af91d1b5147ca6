package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/internal/registry"
)

// hashCredentials returns a hash of all the credentials.
func hashCredentials(all []keyring.Credential) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range all {
		a := c.Auth
		fmt.Fprintf(h, "%q %q %q %q %q\n", a.Username, a.Password, a.Auth, a.IdentityToken, a.RegistryToken)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// pullNow pulls an image. Before any pod can use the image, the verifier records the credential that was
// used. pullNow runs in a separate goroutine, so it recovers from a panic and returns an error.
func (m *images) pullNow(ctx context.Context, name string, k keyring.Credentials) (r *api.PullImageResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("image pull panicked", "image", name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("pull panicked: %v", p)
		}
	}()
	private := k.IsPrivate()
	if err := m.verifier.BeginPull(ctx, name, private); err != nil {
		return nil, err
	}
	after := context.WithoutCancel(ctx) // the verifier records the pull even if no caller waits for it
	r, with, err := m.tryAll(ctx, name, k)
	if err != nil {
		m.verifier.RecordFailure(after, name, private, ctx.Err() != nil || isUnreachable(err))
		return nil, err
	}
	m.verifier.RecordPull(after, name, r.GetImageRef(), private, with)
	return r, nil
}

// tryAll pulls an image with each credential in turn, until a pull succeeds or the registry cannot be reached. It first
// tries the known credentials, then the credentials from plugins, and finally a pull without a credential.
//
// If the registry cannot be reached, a plugin must not delay the start of a container whose image is on the
// node. So if the image is on the node and there is no known credential, tryAll first pulls without a
// credential. It then runs the plugins only if the registry has responded.
func (m *images) tryAll(
	ctx context.Context, name string, k keyring.Credentials,
) (r *api.PullImageResponse, with keyring.Credential, err error) {
	var errs []error
	try := func(all ...keyring.Credential) (done bool) {
		for _, with = range all {
			r, err = m.svc.PullImage(ctx, &api.PullImageRequest{Image: &api.ImageSpec{Image: name}, Auth: with.Auth})
			if err == nil || isUnreachable(err) || ctx.Err() != nil {
				return true
			}
			errs = append(errs, err)
		}
		return false
	}
	var nobody keyring.Credential
	if try(k.Stored...) {
		return r, with, err
	}
	if k.RunPlugins != nil {
		image, _ := m.localImage(ctx, name)
		if image != nil && len(k.Stored) == 0 && try(nobody) && (err == nil || noConnection(err) || ctx.Err() != nil) {
			return r, with, err
		}
		errs = nil
		given, failed := k.RunPlugins(ctx)
		if failed != nil && ctx.Err() == nil {
			m.log.Warn("a credential provider plugin failed", "image", name, "error", failed)
		}
		done := try(given...)
		if failed != nil {
			errs = append(errs, failed) // if the pull fails, the pod's event contains this error, too
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

// noConnection reports whether err says that no connection to the registry could be established.
func noConnection(err error) bool {
	return registry.IsNetworkError(err) || strings.Contains(err.Error(), "dial tcp")
}
