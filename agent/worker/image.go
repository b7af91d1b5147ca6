package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/runtime/cri"
)

// Imports tells of image archives that are being imported.
type Imports interface {
	// WaitImage returns once no import that goes on can bring the image, or when
	// ctx has ended.
	WaitImage(ctx context.Context, image string) error
}

// Keyring gives the credentials of a pod for an image, the best first.
type Keyring interface {
	Keyring(ctx context.Context, pod *v1.Pod, image string) []*api.AuthConfig
}

// images gets the images of containers: one pull per image and credentials at a
// time, shared among all pods that want it with these, and one back-off for each.
type images struct {
	svc     cri.Images
	imports Imports
	keyring Keyring
	events  Events
	log     *slog.Logger

	mu     sync.Mutex
	pulls  map[wish]*pull
	failed map[wish]failedPull
}

// A wish is for an image with credentials.
type wish struct {
	image string
	auths [sha256.Size]byte
}

// A pull goes on while somebody waits for it.
type pull struct {
	waiting int // guarded by images.mu
	cancel  context.CancelFunc
	done    chan struct{}
	ref     string // valid after done
	took    time.Duration
	err     error
}

type failedPull struct {
	n     int
	retry time.Time
	err   error
}

func newImages(cfg ExecutorConfig) *images {
	return &images{svc: cfg.Images, imports: cfg.Imports, keyring: cfg.Keyring, events: cfg.Events, log: cfg.Log, pulls: map[wish]*pull{}, failed: map[wish]failedPull{}}
}

// ensure returns the image of a container and the reference to create it with,
// after pulling it if the container's imagePullPolicy asks for that.
// https://kubernetes.io/docs/concepts/containers/images/#image-pull-policy
func (m *images) ensure(ctx context.Context, pod *v1.Pod, ctr *v1.Container) (*api.Image, string, error) {
	tell := teller{m.events, pod, ctr.Name}
	name, err := imageName(ctr.Image)
	if err != nil {
		tell.warning(eventInspectFailed, "Failed to apply default image tag %q: %v", ctr.Image, err)
		return nil, "", problem(plan.InvalidImageName, "image name %q is not valid: %w", ctr.Image, err)
	}
	if ctr.ImagePullPolicy != v1.PullAlways {
		image, err := m.present(ctx, name)
		if image == nil && err == nil {
			image, err = m.awaitImport(ctx, name)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			tell.warning(eventInspectFailed, "Failed to inspect image %q: %v", ctr.Image, err)
		case image != nil:
			tell.normal(eventPulled, "Container image %q already present on machine", ctr.Image)
		}
		if image != nil || err != nil {
			return image, image.GetId(), err
		}
	}
	if ctr.ImagePullPolicy == v1.PullNever {
		tell.warning(eventErrImageNeverPull, "Container image %q is not present with pull policy of Never", ctr.Image)
		return nil, "", problem(plan.ErrImageNeverPull, "container image %q is not present with pull policy of Never", ctr.Image)
	}
	return m.fetch(ctx, pod, ctr, name, tell)
}

// fetch pulls an image, or does with the one that is here.
func (m *images) fetch(ctx context.Context, pod *v1.Pod, ctr *v1.Container, name string, tell teller) (*api.Image, string, error) {
	var auths []*api.AuthConfig
	if m.keyring != nil {
		auths = m.keyring.Keyring(ctx, pod, name)
	}
	began := time.Now()
	w := wish{name, digest(auths)}
	p, err := m.join(ctx, w, auths)
	if err == nil {
		tell.normal(eventPulling, "Pulling image %q", ctr.Image)
		if err = m.await(ctx, w, p); err != nil && ctx.Err() == nil {
			tell.warning(eventFailed, "Failed to pull image %q: %v", ctr.Image, err)
		}
	}
	if err != nil {
		if image := m.instead(ctx, name, err); image != nil {
			tell.normal(eventPulled, "Container image %q already present on machine, and its registry cannot be reached", ctr.Image)
			return image, image.Id, nil
		}
		return nil, "", err
	}
	image, err := m.present(ctx, p.ref)
	if image == nil && err == nil {
		err = problem(plan.ImageInspectError, "image %q is gone right after its pull", ctr.Image)
	}
	if err != nil {
		return nil, "", err
	}
	tell.normal(eventPulled, "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		ctr.Image, p.took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), image.Size)
	return image, p.ref, nil
}

// instead returns the image that is here, or is being imported, for one that
// could not be pulled because the registry cannot be reached. In this islet is
// unlike a kubelet on purpose: a node that lost its connection, and perhaps its
// power, has to start its pods, also under the policy Always. An answer of the
// registry counts: who may not have the image, or whose tag is gone, gets no
// older one.
func (m *images) instead(ctx context.Context, name string, why error) *api.Image {
	if !unreachable(why) {
		return nil
	}
	image, _ := m.present(ctx, name)
	if image == nil {
		image, _ = m.awaitImport(ctx, name)
	}
	if image != nil {
		m.log.Warn("the registry cannot be reached, using the image that is here", "image", name, "err", why)
	}
	return image
}

// imageName checks a reference as a kubelet does and adds its default tag.
func imageName(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// present returns nil for an image that is not here.
func (m *images) present(ctx context.Context, name string) (*api.Image, error) {
	r, err := m.svc.ImageStatus(ctx, &api.ImageStatusRequest{Image: &api.ImageSpec{Image: name}})
	if gone(err) != nil {
		return nil, problem(plan.ImageInspectError, "look for image %q: %w", name, err)
	}
	return r.GetImage(), nil
}

func (m *images) awaitImport(ctx context.Context, name string) (*api.Image, error) {
	if m.imports == nil {
		return nil, nil
	}
	if err := m.imports.WaitImage(ctx, name); err != nil {
		return nil, err
	}
	return m.present(ctx, name)
}

// join joins the pull of the image that goes on, or begins one, and fails while the
// last one is not to be repeated. Who joins awaits.
func (m *images) join(ctx context.Context, w wish, auths []*api.AuthConfig) (*pull, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.failed[w]; ok && time.Now().Before(f.retry) {
		return nil, &Problem{Reason: plan.ErrImagePull, Retry: f.retry, Err: f.err}
	}
	p := m.pulls[w]
	if p == nil {
		p = m.begin(ctx, w, auths)
	}
	p.waiting++
	return p, nil
}

// await waits for the end of a pull; a pull for which nobody waits is ended.
func (m *images) await(ctx context.Context, w wish, p *pull) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	p.waiting--
	last := p.waiting == 0
	if last && m.pulls[w] == p {
		delete(m.pulls, w)
	}
	m.mu.Unlock()
	if last {
		p.cancel()
		<-p.done
	}
	return ctx.Err()
}

// begin starts a pull that outlives the caller's context if others wait too.
func (m *images) begin(ctx context.Context, w wish, auths []*api.AuthConfig) *pull {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &pull{cancel: cancel, done: make(chan struct{})}
	m.pulls[w] = p
	go func() {
		defer cancel()
		began := time.Now()
		r, err := m.pullNow(ctx, w.image, auths)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.pulls[w] == p {
			delete(m.pulls, w)
		}
		p.took = time.Since(began)
		if p.ref = r.GetImageRef(); err == nil {
			delete(m.failed, w)
		} else if p.err = err; ctx.Err() == nil {
			p.err = m.note(w, err)
		}
		close(p.done)
	}()
	return p
}

// digest tells one set of credentials from another.
func digest(auths []*api.AuthConfig) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, a := range auths {
		fmt.Fprintf(h, "%q %q %q %q %q\n", a.Username, a.Password, a.Auth, a.IdentityToken, a.RegistryToken)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// pullNow tries each of the credentials, and then without any. It turns a panic,
// which nobody else could recover, into an error.
func (m *images) pullNow(ctx context.Context, name string, auths []*api.AuthConfig) (r *api.PullImageResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("image pull panicked", "image", name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("pull panicked: %v", p)
		}
	}()
	var errs []error
	for _, auth := range append(slices.Clip(auths), nil) {
		r, err := m.svc.PullImage(ctx, &api.PullImageRequest{Image: &api.ImageSpec{Image: name}, Auth: auth})
		if err == nil || unreachable(err) || ctx.Err() != nil {
			return r, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// note remembers a failed pull and for how long not to try again.
func (m *images) note(w wish, err error) error {
	now := time.Now()
	maps.DeleteFunc(m.failed, func(_ wish, f failedPull) bool { return now.Sub(f.retry) > plan.PullForget })
	n := m.failed[w].n + 1
	err = fmt.Errorf("failed to pull and unpack image %q: %w", w.image, err)
	m.failed[w] = failedPull{n: n, retry: now.Add(plan.PullDelay(n)), err: err}
	return &Problem{Reason: plan.ErrImagePull, Retry: m.failed[w].retry, Err: err}
}

func (m *images) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.failed)
}

// unreachable reports whether a pull failed on the way to the registry and not by
// its answer.
func unreachable(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) || strings.Contains(err.Error(), "dial tcp")
}
