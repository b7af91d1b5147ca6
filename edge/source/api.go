package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	apiFirstRetry = 500 * time.Millisecond
	apiLastRetry  = time.Minute      // of an outage of half an hour and more
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

// A History knows whether the API server is where it was. *history.History is one.
type History interface {
	Doubt()                           // a watch ended: it may be another server now
	Settle(ctx context.Context) error // called before a list or a version from before is believed
	// Resume is called before a watch goes on from a version.
	Resume(ctx context.Context, version string) error
	Seen(version string) // called before what has this version is given to the sink
	// Listed compares the versions of two lists, and reports whether the second is older.
	Listed(ctx context.Context, before, now string) bool
	Rewritten() <-chan struct{} // versions from before mean nothing any more
}

// anyHistory believes every server.
type anyHistory struct{}

func (anyHistory) Doubt()                                      {}
func (anyHistory) Settle(context.Context) error                { return nil }
func (anyHistory) Resume(context.Context, string) error        { return nil }
func (anyHistory) Seen(string)                                 {}
func (anyHistory) Listed(context.Context, string, string) bool { return false }
func (anyHistory) Rewritten() <-chan struct{}                  { return nil }

// APIConfig says from where to take pods.
type APIConfig struct {
	Client   *kube.Client
	Node     string          // name of this node
	Sink     APISink         // of the pods to run
	Observer Observer        // nil: none
	History  History         // nil: every server is believed
	Again    <-chan struct{} // the full set is to be listed anew; nil: never
	Retry    <-chan struct{} // the server may answer again; nil: never said
	Log      *slog.Logger
}

// API is the source of the pods that the scheduler bound to this node.
type API struct {
	APIConfig
	version   string // of the last thing that the sink has taken; empty: list anew
	newest    string // of the last list or event, to compare the next list with
	warned    bool   // of this outage
	rewritten <-chan struct{}
}

// NewAPI checks the configuration.
func NewAPI(c APIConfig) (*API, error) {
	if c.Client == nil || c.Node == "" || c.Sink == nil {
		return nil, errors.New("pods of the API server: client, node or sink is missing")
	}
	if c.History == nil {
		c.History = anyHistory{}
	}
	return &API{APIConfig: c, rewritten: c.History.Rewritten()}, nil
}

// Run tells the sink what the server wants until ctx ends. A watch that ended goes
// on where it was; only when the server no longer knows that place, or the sink could
// not take something, the full set is listed.
func (a *API) Run(ctx context.Context) error {
	again := retry.Backoff{First: apiFirstRetry, Soon: apiLastRetry / 4, Most: apiLastRetry}
	for {
		began := time.Now()
		err := a.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.History.Doubt()
		a.report(err)
		if time.Since(began) > apiSteady {
			again.Reset()
		}
		if _, err := kube.Wait(ctx, &again, err, a.Retry); err != nil {
			return nil
		}
	}
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
	if err := a.History.Settle(ctx); err != nil {
		return err
	}
	a.forget()
	if a.version != "" {
		if err := a.History.Resume(ctx, a.newest); err != nil {
			return err
		}
		a.forget()
	}
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
		batch, open := a.next(ctx, w.ResultChan())
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

// forget drops the version if it is of a history that the server does not have, or if
// someone wants the list.
func (a *API) forget() {
	select {
	case <-a.rewritten:
		a.version, a.newest = "", ""
	case <-a.Again:
		a.version = ""
	default:
	}
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
	if versionless(all.ResourceVersion) { // whoever answered, an API server says of which moment its list is
		return errors.New("list the pods of this node: the answer has no resourceVersion, so it is not that of an API server; the pods stay")
	}
	if a.History.Listed(ctx, a.newest, all.ResourceVersion) {
		a.newest = ""
	}
	a.History.Seen(all.ResourceVersion)
	var claims []desired.Claim
	for i := range all.Items {
		if c, ok := claimOf(&all.Items[i]); ok {
			claims = append(claims, c)
		}
	}
	if err := a.Sink.Set(ctx, desired.API, claims, nil); err != nil {
		return err
	}
	a.version, a.newest = all.ResourceVersion, all.ResourceVersion
	if a.Observer != nil {
		a.Observer.Listed(all.Items)
	}
	return nil
}

func versionless(version string) bool { return version == "" || version == "0" }

// next waits for an event and gives it with those that have arrived behind it. A watch
// of another history, which may be deaf, ends.
func (a *API) next(ctx context.Context, events <-chan apiwatch.Event) (batch []apiwatch.Event, open bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case <-a.rewritten:
		a.version, a.newest = "", ""
		return nil, false
	case <-a.Again:
		a.version = ""
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
	a.History.Seen(version)
	if err := a.tell(ctx, latest); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	a.version, a.newest = version, version
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
