package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/provision"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/object"
	"github.com/islet-edge/islet/edge/podcertificate"
	"github.com/islet-edge/islet/internal/dirty"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/keyring"
)

// Config configures Open.
type Config struct {
	Client         *kube.Client
	Standalone     bool // the node has no control plane
	Store          Store
	Dir            string // parent of the directories of claims from manifests
	Quota          provision.Quota
	Node           string           // name of the Node
	NodeUID        func() types.UID // returns the UID of the Node; empty if the Node has never been read
	Events         event.Sink
	Strategy       string        // configMapAndSecretChangeDetectionStrategy
	Every          time.Duration // see object.Config
	OnPeriodicTask func()        // see object.Config
	Now            func() time.Time
	Desired        Desired
	Refresh        func(*v1.Pod) error // updates the volumes of a pod
	Retry          func(types.UID)     // makes a pod that waits for an object try again
	Log            *slog.Logger
}

// Store persists objects across restarts. *store.Store implements it.
type Store interface {
	object.Store
	podcertificate.Store
	local.Store
}

// Desired returns the pods that should run. *desired.Desired implements it.
type Desired interface {
	Get(types.UID) (desired.Pod, bool)
	List() []desired.Pod
}

// Objects is a pod hook. It must run before the volumes' hook.
type Objects struct {
	API   *object.Cache                // nil if the node has no control plane
	Certs *podcertificate.Certificates // nil if the node has no control plane

	environments savedEnvironments
	Local        *local.Objects    // objects from manifests
	Claims       *provision.Claims // claims from manifests; a pod hook that runs after this one
	c            Config
	dirty        *dirty.Set[types.UID]
	repeat       *dirty.Set[types.UID]        // pods whose volumes must be updated again after a failure
	failed       map[types.UID]*failedRefresh // only Run uses it
}

// Open loads the stored objects of the desired pods.
func Open(ctx context.Context, c Config) (*Objects, error) {
	o := &Objects{
		c: c, dirty: dirty.New[types.UID](), repeat: dirty.New[types.UID](), failed: map[types.UID]*failedRefresh{},
	}
	var pods, fromManifests []*v1.Pod
	for _, d := range c.Desired.List() {
		if local.IsStatic(d.Pod) {
			fromManifests = append(fromManifests, d.Pod)
		} else {
			pods = append(pods, d.Pod)
		}
	}
	var err error
	if o.Local, err = local.Open(ctx, local.Config{Store: c.Store, Changed: o.MarkOutdated, Log: c.Log}, fromManifests); err != nil {
		return nil, err
	}
	for _, p := range fromManifests {
		if o.Local.HasPod(p.UID) {
			o.MarkOutdated(p.UID) // the pod's volumes may be out of date after a power loss
		}
	}
	claims := provision.Config{Dir: c.Dir, Node: c.Node, Local: o.Local, Quota: c.Quota, Log: c.Log}
	if c.Standalone {
		o.Claims = provision.New(claims)
		return o, nil
	}
	o.API = object.New(object.Config{
		Client: c.Client, Store: c.Store, Node: c.Node, Strategy: c.Strategy, Every: c.Every,
		OnPeriodicTask: c.OnPeriodicTask, Changed: o.MarkOutdated, Now: c.Now, Log: c.Log,
	})
	claims.API = o.API
	o.Claims = provision.New(claims)
	for _, p := range pods {
		o.MarkOutdated(p.UID)
	}
	if err := o.API.Load(ctx, pods); err != nil {
		return nil, fmt.Errorf("load the API objects of pods: %w", err)
	}
	o.Certs = podcertificate.New(podcertificate.Config{
		Client: c.Client, Store: c.Store, Node: c.Node, NodeUID: c.NodeUID, Changed: o.MarkOutdated,
		Events: c.Events, Now: c.Now, Log: c.Log,
	})
	if err := o.Certs.Load(ctx, pods); err != nil {
		return nil, fmt.Errorf("load the certificates of pods: %w", err)
	}
	return o, nil
}

// A source provides the objects for a pod.
type source interface {
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
	Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error)
	Deleted(pod *v1.Pod, kind, name string) bool
	PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string)
}

// sourceOf returns the source of the pod's objects: the API server or the manifests.
func (o *Objects) sourceOf(pod *v1.Pod) source {
	if o.API == nil || local.IsStatic(pod) {
		return o.Local
	}
	return o.API
}

// ConfigMap returns a ConfigMap that the pod refers to.
func (o *Objects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	return o.sourceOf(pod).ConfigMap(pod, name)
}

// Secret returns a Secret that the pod refers to.
func (o *Objects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	return o.sourceOf(pod).Secret(pod, name)
}

// Token returns a token of the pod's service account.
func (o *Objects) Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error) {
	return o.sourceOf(pod).Token(pod, p)
}

// errAlone is the error for an object that only pods from an API server may use.
var errAlone = errors.New("only pods from an API server can use it")

// TrustAnchors returns the certificates of ClusterTrustBundles.
func (o *Objects) TrustAnchors(pod *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if o.API == nil || local.IsStatic(pod) {
		return nil, errAlone
	}
	return o.API.TrustAnchors(pod, p)
}

// Credentials returns the key and the certificate chain of a podCertificate source.
func (o *Objects) Credentials(pod *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	if o.API == nil || local.IsStatic(pod) {
		return nil, nil, fmt.Errorf("podCertificate: %w", errAlone)
	}
	return o.Certs.Credentials(pod, volume, source)
}

// Deleted reports whether a ConfigMap or Secret of the pod has been deleted.
func (o *Objects) Deleted(pod *v1.Pod, kind, name string) bool {
	return o.sourceOf(pod).Deleted(pod, kind, name)
}

// PullSecrets returns the credentials in the pod's imagePullSecrets that apply to an image, and the names of the
// Secrets that are missing.
func (o *Objects) PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string) {
	return o.sourceOf(pod).PullSecrets(ctx, pod, image)
}

// Services returns the Services from which the pod's environment variables are made. They come from the API server,
// also for pods from manifests.
func (o *Objects) Services(pod *v1.Pod) ([]v1.Service, error) {
	if o.API == nil {
		return nil, nil
	}
	return o.API.Services(pod)
}

// Name returns the name of the hook.
func (*Objects) Name() string { return "objects" }

// Prepare registers a pod and waits until all objects to which the pod refers are available.
func (o *Objects) Prepare(ctx context.Context, pod *v1.Pod) error {
	if local.IsStatic(pod) {
		o.Local.Register(pod)
	}
	if o.API == nil {
		return nil
	}
	if err := o.API.Prepare(ctx, pod); err != nil {
		return err
	}
	return o.Certs.Prepare(ctx, pod)
}

// Ended releases the objects of a pod that has ended but is still desired.
func (o *Objects) Ended(ctx context.Context, pod *v1.Pod) error { return o.Release(ctx, pod.UID) }

// Release releases the objects of a pod. It removes objects that no other pod uses.
func (o *Objects) Release(ctx context.Context, uid types.UID) error {
	if err := o.Local.Release(ctx, uid); err != nil || o.API == nil {
		return err
	}
	return errors.Join(o.API.Release(ctx, uid), o.Certs.Release(ctx, uid))
}

// Problems returns the current problems with objects of the API server.
func (o *Objects) Problems() []object.Problem {
	if o.API == nil {
		return nil
	}
	return o.API.Problems()
}

// Retry fetches missing objects again. It must be called when the API server becomes reachable.
func (o *Objects) Retry() {
	o.API.Retry()
	o.Certs.Retry()
}

// ForgetVersions discards the stored resource versions, so that all objects are listed again. It must be
// called when the control plane was restored or replaced, because the resource versions are then no longer
// valid.
func (o *Objects) ForgetVersions(ctx context.Context) {
	if err := o.API.DropVersions(ctx); err != nil {
		o.c.Log.Error("cannot store that the resource versions of objects are void: the agent will use them after a restart",
			"error", err)
	}
}
