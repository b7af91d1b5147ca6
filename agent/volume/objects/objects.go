package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/provision"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/object"
	"github.com/islet-edge/islet/edge/podcertificate"
	"github.com/islet-edge/islet/internal/dirty"
	"github.com/islet-edge/islet/internal/keyring"
)

// Config is what Open needs.
type Config struct {
	Client   *kube.Client
	Alone    bool // the node has no control plane
	Store    Store
	Dir      string           // of the claims of manifests
	Quota    provision.Quota  // of the claims of manifests
	Node     string           // its name
	NodeUID  func() types.UID // of its Node; empty: it was never seen
	Events   podcertificate.Events
	Strategy string        // configMapAndSecretChangeDetectionStrategy
	Every    time.Duration // object.Config's
	Touched  func()        // object.Config's
	Now      func() time.Time
	Desired  Desired
	Refresh  func(*v1.Pod) error // brings the volumes of a pod up to date
	Retry    func(types.UID)     // lets a pod start that waited for something
	Log      *slog.Logger
}

// Store keeps everything over a restart. *store.Store is one.
type Store interface {
	object.Store
	podcertificate.Store
	local.Store
}

// Desired tells what is wanted. *desired.Desired is one.
type Desired interface {
	Get(types.UID) (desired.Pod, bool)
	List() []desired.Pod
}

// Objects is a hook; it comes before the volumes.
type Objects struct {
	API   *object.Cache                // nil: the node stands alone
	Certs *podcertificate.Certificates // nil too

	before environments
	Local  *local.Objects    // those of manifests
	Own    *provision.Claims // what these claim; a hook that comes next
	c      Config
	dirty  *dirty.Set[types.UID]
}

// Open takes over what the last run knew for the pods that are wanted.
func Open(ctx context.Context, c Config) (*Objects, error) {
	o := &Objects{c: c, dirty: dirty.New[types.UID]()}
	var pods, ours []*v1.Pod
	for _, d := range c.Desired.List() {
		if local.Serves(d.Pod) {
			ours = append(ours, d.Pod)
		} else {
			pods = append(pods, d.Pod)
		}
	}
	var err error
	if o.Local, err = local.Open(ctx, local.Config{Store: c.Store, Changed: o.Changed, Log: c.Log}, ours); err != nil {
		return nil, err
	}
	for _, p := range ours {
		if o.Local.Has(p.UID) {
			o.Changed(p.UID) // its volumes may be those of before a power loss
		}
	}
	own := provision.Config{Dir: c.Dir, Node: c.Node, Local: o.Local, Quota: c.Quota, Log: c.Log}
	if c.Alone {
		o.Own = provision.New(own)
		return o, nil
	}
	o.API = object.New(object.Config{Client: c.Client, Store: c.Store, Node: c.Node, Strategy: c.Strategy, Every: c.Every, Touched: c.Touched, Changed: o.Changed, Now: c.Now, Log: c.Log})
	own.API = o.API
	o.Own = provision.New(own)
	for _, p := range pods {
		o.Changed(p.UID)
	}
	if err := o.API.Load(ctx, pods); err != nil {
		return nil, fmt.Errorf("load what pods use of the API: %w", err)
	}
	o.Certs = podcertificate.New(podcertificate.Config{Client: c.Client, Store: c.Store, Node: c.Node, NodeUID: c.NodeUID, Changed: o.Changed, Events: c.Events, Now: c.Now, Log: c.Log})
	if err := o.Certs.Load(ctx, pods); err != nil {
		return nil, fmt.Errorf("load the certificates of pods: %w", err)
	}
	return o, nil
}

// A source of objects is where a pod's come from.
type source interface {
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
	Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error)
	Deleted(pod *v1.Pod, kind, name string) bool
	PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string)
}

// of gives where a pod's objects come from. There is no way from one to the other.
func (o *Objects) of(pod *v1.Pod) source {
	if o.API == nil || local.Serves(pod) {
		return o.Local
	}
	return o.API
}

// ConfigMap gives one that the pod names.
func (o *Objects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	return o.of(pod).ConfigMap(pod, name)
}

// Secret gives one that the pod names.
func (o *Objects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	return o.of(pod).Secret(pod, name)
}

// Token gives a token of the pod's service account.
func (o *Objects) Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error) {
	return o.of(pod).Token(pod, p)
}

// errAlone is what a pod gets that no API server knows.
var errAlone = errors.New("only a pod of an API server has it")

// TrustAnchors gives the certificates of ClusterTrustBundles.
func (o *Objects) TrustAnchors(pod *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if o.API == nil || local.Serves(pod) {
		return nil, errAlone
	}
	return o.API.TrustAnchors(pod, p)
}

// Credentials gives the key and the certificate chain of a podCertificate source.
func (o *Objects) Credentials(pod *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	if o.API == nil || local.Serves(pod) {
		return nil, nil, fmt.Errorf("podCertificate: %w", errAlone)
	}
	return o.Certs.Credentials(pod, volume, source)
}

// Deleted reports whether a ConfigMap or Secret (kind) that the pod has is there no more.
func (o *Objects) Deleted(pod *v1.Pod, kind, name string) bool {
	return o.of(pod).Deleted(pod, kind, name)
}

// PullSecrets gives the credentials that the pod's imagePullSecrets have for an image.
func (o *Objects) PullSecrets(ctx context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string) {
	return o.of(pod).PullSecrets(ctx, pod, image)
}

// Services gives those that the pod's environment names: the API server's, for all pods.
func (o *Objects) Services(pod *v1.Pod) ([]v1.Service, error) {
	if o.API == nil {
		return nil, nil
	}
	return o.API.Services(pod)
}

// Name is the hook's.
func (*Objects) Name() string { return "objects" }

// Prepare takes up a pod, and waits until all that it names is known.
func (o *Objects) Prepare(ctx context.Context, pod *v1.Pod) error {
	if local.Serves(pod) {
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

// Ended forgets what a pod uses of the API that is over, though it is still wanted.
func (o *Objects) Ended(ctx context.Context, pod *v1.Pod) error { return o.Release(ctx, pod.UID) }

// Release forgets a pod and what only it named.
func (o *Objects) Release(ctx context.Context, uid types.UID) error {
	if err := o.Local.Release(ctx, uid); err != nil || o.API == nil {
		return err
	}
	return errors.Join(o.API.Release(ctx, uid), o.Certs.Release(ctx, uid))
}

// Problems gives all there are with objects of the API.
func (o *Objects) Problems() []object.Problem {
	if o.API == nil {
		return nil
	}
	return o.API.Problems()
}

// Retry asks again for what could not be had: the link is up.
func (o *Objects) Retry() {
	o.API.Retry()
	o.Certs.Retry()
}

// ForgetVersions has all objects listed anew: the control plane has another history.
func (o *Objects) ForgetVersions(ctx context.Context) {
	if err := o.API.Void(ctx); err != nil {
		o.c.Log.Error("the versions of ConfigMaps and Secrets are voided for this run of the agent only", "error", err)
	}
}

// Changed says that something that a pod shows in its volumes has changed: an object,
// or a label or annotation of the pod itself. It never blocks.
func (o *Objects) Changed(uid types.UID) { o.dirty.Add(uid) }

// Run keeps the objects, and the volumes that show them, up to date until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if o.API != nil {
		g.Go(func() error { return o.API.Run(ctx) })
		g.Go(func() error { return o.Certs.Run(ctx) })
	}
	g.Go(func() error {
		for {
			select {
			case <-o.dirty.Wake():
				o.refresh()
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// refresh brings the volumes of pods that changed up to date, and lets those start
// that waited for something.
func (o *Objects) refresh() {
	for _, uid := range o.dirty.Take() {
		if d, ok := o.c.Desired.Get(uid); ok && !d.Deleting {
			if err := o.c.Refresh(d.Pod); err != nil {
				o.c.Log.Warn("volumes of a pod could not be brought up to date", "pod", d.Pod.Namespace+"/"+d.Pod.Name, "uid", uid, "error", err)
			}
		}
		o.c.Retry(uid)
	}
}
