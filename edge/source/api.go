package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
)

const (
	apiFirstRetry = 500 * time.Millisecond // doubled up to apiLastRetry
	apiLastRetry  = 10 * time.Second
	apiSteady     = 10 * time.Second // a watch that lived as long has shown that the server is well
	apiBatch      = 512              // events that are told in one change, at most
)

// An APISink takes what the API server says. *desired.Desired is one.
type APISink interface {
	Sink
	// Update takes what changed in the set of a source. On an error the full set is
	// told again.
	Update(ctx context.Context, source string, claims []desired.Claim, gone []desired.Gone) error
}

// An Observer learns how the API server shows the pods of this node, mirror pods
// too. It is told after the sink, by one goroutine, and must not keep what it is
// given.
type Observer interface {
	Listed(pods []v1.Pod) // all there are
	Seen(pod *v1.Pod)     // one is new or was changed
	Gone(pod *v1.Pod)     // one was removed
}

// APIConfig says from where to take pods.
type APIConfig struct {
	Client   *kube.Client
	Node     string          // name of this node
	Sink     APISink         // of the pods to run
	Observer Observer        // nil: none
	Retry    <-chan struct{} // the server may answer again; nil: never said
	Log      *slog.Logger
}

// API is the source of the pods that the scheduler bound to this node.
type API struct {
	APIConfig
	version string // of the last thing that the sink has taken; empty: list anew
	warned  bool   // of this outage
}

// NewAPI checks the configuration.
func NewAPI(c APIConfig) (*API, error) {
	if c.Client == nil || c.Node == "" || c.Sink == nil {
		return nil, errors.New("pods of the API server: client, node or sink is missing")
	}
	return &API{APIConfig: c}, nil
}

// Run tells the sink what the server wants until ctx ends. A watch that ended goes
// on where it was; only when the server no longer knows that place, or the sink could
// not take something, the full set is listed.
func (a *API) Run(ctx context.Context) error {
	delay := apiFirstRetry
	for {
		began := time.Now()
		err := a.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.report(err)
		if time.Since(began) > apiSteady {
			delay = apiFirstRetry
		}
		pause := max(delay/2+rand.N(delay), retryAfter(err))
		select {
		case <-ctx.Done():
			return nil
		case <-a.Retry:
			delay = apiFirstRetry
		case <-time.After(pause):
			delay = min(2*delay, apiLastRetry)
		}
	}
}

// retryAfter is how long the server asks to be left alone.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, time.Minute)
}

func (a *API) report(err error) {
	switch {
	case err == nil:
		a.warned = false
	case a.warned, errors.Is(err, kube.ErrNoLink):
		a.Log.Debug("the pods of the API server cannot be followed yet", "error", err)
	default:
		a.Log.Warn("the pods of the API server cannot be followed, those that are known stay", "error", err)
		a.warned = true
	}
}

// follow lists if it must, then watches until that ends.
func (a *API) follow(ctx context.Context) error {
	if a.version == "" {
		if err := a.list(ctx); err != nil {
			if !errors.Is(err, kube.ErrNoLink) { // which the link itself tells
				a.Sink.Fail(desired.API, []desired.Problem{{Message: err.Error()}})
			}
			return err
		}
	}
	w, err := kube.Watch[v1.Pod](ctx, a.Client, "", a.options(a.version))
	if err != nil {
		return a.watchError(err)
	}
	defer w.Stop()
	a.report(nil)
	for {
		batch, open := next(ctx, w.ResultChan())
		if err := a.take(ctx, batch); err != nil {
			return a.watchError(err)
		}
		if !open {
			return nil
		}
	}
}

func (a *API) options(version string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.Node, ResourceVersion: version, AllowWatchBookmarks: true}
}

// watchError says when to list anew.
func (a *API) watchError(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, errNotTaken) {
		a.version = ""
	}
	return fmt.Errorf("watch the pods of this node: %w", err)
}

// errNotTaken says that the sink does not know what it was told.
var errNotTaken = errors.New("not taken")

// list tells the full set. It asks for the newest one and not for any that a cache
// has (resourceVersion 0): an older one would end pods, or begin some again that
// have ended.
func (a *API) list(ctx context.Context) error {
	o := a.options("")
	o.AllowWatchBookmarks = false
	all, err := kube.List[v1.PodList](ctx, a.Client, "", o)
	if err != nil {
		return fmt.Errorf("list the pods of this node: %w", err)
	}
	var claims []desired.Claim
	for i := range all.Items {
		if c, ok := claimOf(&all.Items[i]); ok {
			claims = append(claims, c)
		}
	}
	if err := a.Sink.Set(ctx, desired.API, claims, nil); err != nil {
		return err
	}
	a.version = all.ResourceVersion
	if a.Observer != nil {
		a.Observer.Listed(all.Items)
	}
	return nil
}

// next waits for an event and gives it with those that have arrived behind it.
func next(ctx context.Context, events <-chan apiwatch.Event) (batch []apiwatch.Event, open bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case e, ok := <-events:
		if !ok {
			return nil, false
		}
		batch = append(batch, e)
	}
	for len(batch) < apiBatch {
		select {
		case e, ok := <-events:
			if !ok {
				return batch, false
			}
			batch = append(batch, e)
		default:
			return batch, true
		}
	}
	return batch, true
}

// take tells what some events changed, of each pod only the newest.
func (a *API) take(ctx context.Context, batch []apiwatch.Event) error {
	latest := map[types.UID]apiwatch.Event{}
	version := a.version
	var failed error
	for _, e := range batch {
		p, ok := e.Object.(*v1.Pod)
		if e.Type == apiwatch.Error || !ok {
			failed = apierrors.FromObject(e.Object)
			break
		}
		version = p.ResourceVersion
		if e.Type != apiwatch.Bookmark {
			latest[p.UID] = e
		}
	}
	if err := a.tell(ctx, latest); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	a.version = version
	return failed
}

func (a *API) tell(ctx context.Context, latest map[types.UID]apiwatch.Event) error {
	var claims []desired.Claim
	var gone []desired.Gone
	uids := slices.Sorted(maps.Keys(latest))
	for _, uid := range uids {
		p := latest[uid].Object.(*v1.Pod)
		c, ours := claimOf(p)
		switch {
		case !ours:
		case latest[uid].Type == apiwatch.Deleted:
			gone = append(gone, desired.Gone{UID: uid, Ending: endingOf(p)})
		default:
			claims = append(claims, c)
		}
	}
	if len(claims)+len(gone) > 0 {
		if err := a.Sink.Update(ctx, desired.API, claims, gone); err != nil {
			return err
		}
	}
	if a.Observer == nil {
		return nil
	}
	for _, uid := range uids {
		p := latest[uid].Object.(*v1.Pod)
		if latest[uid].Type == apiwatch.Deleted {
			a.Observer.Gone(p)
		} else {
			a.Observer.Seen(p)
		}
	}
	return nil
}
