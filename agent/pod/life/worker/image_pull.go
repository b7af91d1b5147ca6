package worker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/runtime/cri"
)

// Imports imports image archives.
type Imports interface {
	// WaitImage waits until no import that may contain the image is in progress, or until ctx has ended.
	WaitImage(ctx context.Context, image string) error
}

// Keyring returns the credentials that a pod has for an image. credentials.Credentials implements it.
type Keyring interface {
	Keyring(ctx context.Context, pod *v1.Pod, image string) keyring.Credentials
}

// PullVerifier decides which pods may use a private image that is on the node. pulls.Verifier implements it.
type PullVerifier interface {
	// MayUse reports whether a pod with the given credentials may use the image with the given name and ID, which is on
	// the node. MayUse makes no request to the registry.
	MayUse(ctx context.Context, name, id string, credentials func() keyring.Credentials) bool

	// BeginPull is called before each pull. If it returns nil, RecordPull or RecordFailure is called after the pull.
	// The parameter private is true if only some pods may use the image. RecordPull gets the credential that the
	// registry accepted. This is the zero value if the registry required no credential.
	BeginPull(ctx context.Context, name string, private bool) error
	RecordPull(ctx context.Context, name, id string, private bool, with keyring.Credential)
	RecordFailure(ctx context.Context, name string, private, unreachable bool)
}

// allowAll is the default PullVerifier. It lets every pod use every image on the node.
type allowAll struct{}

func (allowAll) MayUse(context.Context, string, string, func() keyring.Credentials) bool { return true }
func (allowAll) BeginPull(context.Context, string, bool) error                           { return nil }
func (allowAll) RecordPull(context.Context, string, string, bool, keyring.Credential)    {}
func (allowAll) RecordFailure(context.Context, string, bool, bool)                       {}

// images finds or pulls the images of containers. Pods that need the same image with the same credentials share one pull
// and one back-off.
type images struct {
	svc      cri.Images
	imports  Imports
	keyring  Keyring
	verifier PullVerifier
	events   event.Sink
	log      *slog.Logger

	mu     sync.Mutex
	pulls  map[pullKey]*pull // in progress
	failed map[pullKey]failedPull
}

// A pullKey identifies a pull by the image and the credentials. A plugin may return different credentials each time, so
// its credentials are represented by their scope.
type pullKey struct {
	image string
	auths [sha256.Size]byte
	scope string
}

// A pull is cancelled as soon as no caller waits for it.
type pull struct {
	waiting int // number of waiting callers; guarded by images.mu
	cancel  context.CancelFunc
	done    chan struct{}
	ref     string // ref, took and err are valid once done is closed
	took    time.Duration
	err     error
}

func newImages(cfg ExecutorConfig) *images {
	return &images{
		svc: cfg.Images, imports: cfg.Imports, keyring: cfg.Keyring, verifier: cfg.Verifier, events: cfg.Events, log: cfg.Log,
		pulls: map[pullKey]*pull{}, failed: map[pullKey]failedPull{},
	}
}

// ensureImage returns the image of a container, and the reference with which to create the container. It pulls the
// image if the container's imagePullPolicy requires this. It also pulls an image that is on the node if the
// pod has not yet proven that it may use the image.
// https://kubernetes.io/docs/concepts/containers/images/#image-pull-policy
// https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification
func (m *images) ensureImage(ctx context.Context, pod *v1.Pod, ctr *v1.Container) (*api.Image, string, error) {
	tell := podEventRecorder{m.events, pod, ctr.Name}
	name, err := imageName(ctr.Image)
	if err != nil {
		err = fmt.Errorf("Failed to apply default image tag %[1]q: "+ //nolint:staticcheck // the message of a kubelet
			"couldn't parse image name %[1]q: %[2]w", ctr.Image, err)
		tell.recordWarning(eventInspectFailed, "%v", err)
		return nil, "", newProblem(plan.InvalidImageName, "%w", err)
	}
	if ctr.ImagePullPolicy != v1.PullAlways {
		image, err := m.localImage(ctx, name)
		if image == nil && err == nil {
			image, err = m.awaitImport(ctx, name)
		}
		if image != nil && !m.mayUse(ctx, pod, name, image) {
			image, err = nil, ctx.Err() // the pod may use the image only if the registry allows it, so pull it
		}
		switch {
		case err != nil && ctx.Err() == nil:
			tell.recordWarning(eventInspectFailed, "%v", err)
		case image != nil:
			tell.recordNormal(eventPulled, "Container image %q already present on machine and can be accessed by the pod", ctr.Image)
		}
		if image != nil || err != nil {
			return image, image.GetId(), err
		}
	}
	if ctr.ImagePullPolicy == v1.PullNever {
		tell.recordWarning(eventErrImageNeverPull, "Container image %q is not present with pull policy of Never", ctr.Image)
		return nil, "", newProblem(plan.ErrImageNeverPull, "Container image %q is not present with pull policy of Never", ctr.Image)
	}
	return m.fetchImage(ctx, pod, ctr, name, tell)
}

// ensureVolumes calls ensureImage for each image volume that a container mounts (KEP-4639).
func (m *images) ensureVolumes(ctx context.Context, pod *v1.Pod, ctr *v1.Container) error {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		mounts := slices.ContainsFunc(ctr.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == vol.Name })
		if vol.Image == nil || !mounts {
			continue
		}
		as := &v1.Container{Name: ctr.Name, Image: vol.Image.Reference, ImagePullPolicy: vol.Image.PullPolicy}
		if _, _, err := m.ensureImage(ctx, pod, as); err != nil {
			return fmt.Errorf("volume %q: %w", vol.Name, err)
		}
	}
	return nil
}

// fetchImage pulls an image. If the registry cannot be reached, it returns the image on the node, if there is one.
func (m *images) fetchImage(ctx context.Context, pod *v1.Pod, ctr *v1.Container, name string, tell podEventRecorder) (
	*api.Image, string, error,
) {
	creds := m.podCredentials(ctx, pod, name)
	began := time.Now()
	w := pullKey{name, hashCredentials(creds.Stored), creds.Scope}
	p, err := m.joinPull(ctx, w, creds)
	if err == nil {
		tell.recordNormal(eventPulling, "Pulling image %q", ctr.Image)
		if err = m.awaitPull(ctx, w, p); err != nil && ctx.Err() == nil {
			tell.recordWarning(eventFailed, "Failed to pull image %q: %v", ctr.Image, err)
			m.warnOfSecrets(pod, creds.MissingSecrets)
		}
	}
	if err != nil {
		if image := m.localFallback(ctx, pod, name, err); image != nil {
			tell.recordNormal(eventPulled, "Container image %q already present on machine, and its registry cannot be reached", ctr.Image)
			return image, image.Id, nil
		}
		return nil, "", err
	}
	image, err := m.localImage(ctx, p.ref)
	if image == nil && err == nil {
		err = newProblem(plan.ImageInspectError, "image %q is missing right after its pull", ctr.Image)
	}
	if err != nil {
		return nil, "", err
	}
	tell.recordNormal(eventPulled, "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		ctr.Image, p.took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), image.Size)
	return image, p.ref, nil
}

// warnOfSecrets records an event after a failed pull if the node could not get some of the pod's pull
// secrets. The pull may have needed these secrets.
func (m *images) warnOfSecrets(pod *v1.Pod, missing []string) {
	if len(missing) > 0 {
		podEventRecorder{m.events, pod, ""}.recordWarning(eventNoPullSecret,
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
}

// localFallback returns an image that is on the node or is being imported, if the pull failed because the registry
// could not be reached. Otherwise it returns nil, for example if the registry responded that the tag does not
// exist or that access is denied. It also returns nil if the pod has not proven that it may use the image.
//
// A kubelet has no such fallback for the policy Always. islet differs on purpose: a node that lost its network connection,
// and perhaps rebooted, has to start its pods.
func (m *images) localFallback(ctx context.Context, pod *v1.Pod, name string, why error) *api.Image {
	if !isUnreachable(why) {
		return nil
	}
	image, _ := m.localImage(ctx, name)
	if image == nil {
		image, _ = m.awaitImport(ctx, name)
	}
	if image != nil && !m.mayUse(ctx, pod, name, image) {
		return nil
	}
	if image != nil {
		m.log.Warn("the registry cannot be reached, using the image on the node", "image", name, "error", why)
	}
	return image
}

func (m *images) podCredentials(ctx context.Context, pod *v1.Pod, name string) keyring.Credentials {
	if m.keyring == nil {
		return keyring.Credentials{}
	}
	return m.keyring.Keyring(ctx, pod, name)
}

// mayUse reports whether the pod may use an image that is on the node.
func (m *images) mayUse(ctx context.Context, pod *v1.Pod, name string, image *api.Image) bool {
	return m.verifier.MayUse(ctx, name, image.GetId(), func() keyring.Credentials { return m.podCredentials(ctx, pod, name) })
}

// imageName validates a reference and adds the default tag, as a kubelet does.
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

// localImage returns the image with the given name. It returns nil if the image is not on the node.
func (m *images) localImage(ctx context.Context, name string) (*api.Image, error) {
	r, err := m.svc.ImageStatus(ctx, &api.ImageStatusRequest{Image: &api.ImageSpec{Image: name}})
	if ignoreNotFound(err) != nil {
		return nil, newProblem(plan.ImageInspectError, "Failed to inspect image %q: %w", name, err)
	}
	return r.GetImage(), nil
}

// awaitImport waits for the imports that may contain the image. It returns nil if the image is not on the
// node after the imports.
func (m *images) awaitImport(ctx context.Context, name string) (*api.Image, error) {
	if m.imports == nil {
		return nil, nil
	}
	if err := m.imports.WaitImage(ctx, name); err != nil {
		return nil, err
	}
	return m.localImage(ctx, name)
}

// joinPull returns the pull of the image that is in progress, or starts one. The caller must then call awaitPull. During
// the back-off after a failed pull, it returns the error of that pull.
func (m *images) joinPull(ctx context.Context, w pullKey, k keyring.Credentials) (*pull, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.failed[w]; ok && time.Now().Before(f.retryAt) {
		return nil, &Problem{Reason: plan.ErrImagePull, Retry: f.retryAt, Err: f.err}
	}
	p := m.pulls[w]
	if p == nil {
		p = m.beginPull(ctx, w, k)
	}
	p.waiting++
	return p, nil
}

// awaitPull waits until a pull has ended. If ctx ends first and no other caller waits, it cancels the pull.
func (m *images) awaitPull(ctx context.Context, w pullKey, p *pull) error {
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

// beginPull starts a pull. The pull continues after the end of ctx if other callers wait for it.
func (m *images) beginPull(ctx context.Context, w pullKey, k keyring.Credentials) *pull {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &pull{cancel: cancel, done: make(chan struct{})}
	m.pulls[w] = p
	go func() {
		defer cancel()
		began := time.Now()
		r, err := m.pullNow(ctx, w.image, k)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.pulls[w] == p {
			delete(m.pulls, w)
		}
		p.took, p.ref, p.err = time.Since(began), r.GetImageRef(), err
		switch {
		case err == nil:
			delete(m.failed, w)
		case ctx.Err() == nil:
			p.err = m.recordFailure(w, err)
		}
		close(p.done)
	}()
	return p
}
