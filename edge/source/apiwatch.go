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
	apiLastRetry  = time.Minute      // reached after an outage of half an hour
	apiSteady     = 10 * time.Second // minimum duration of a watch that resets the back-off
	apiBatch      = 512              // maximum number of events in one update
)

// An APISink receives the pods of the API server. *desired.Desired implements it.
type APISink interface {
	Sink
	// Update receives the changes since the last Set or Update. If it returns an error, the source calls Set with all pods.
	Update(ctx context.Context, source string, pods []desired.SourcePod, gone []desired.RemovedPod) error
}

// An Observer receives all pods of this node as the server has them, including mirror pods. One goroutine calls the Observer, after it has
// called the sink. The Observer must not keep references to its arguments.
type Observer interface {
	PodsListed(pods []v1.Pod) // all pods
	PodSeen(pod *v1.Pod)      // a new or changed pod
	PodGone(pod *v1.Pod)      // a removed pod
}

// A History detects that the API server has lost changes. *history.History implements it.
type History interface {
	SuspectServer()                         // call it after the end of a watch, because the next answer may come from another server
	VerifyServer(ctx context.Context) error // call it before using a list or an earlier version
	// Call Resume before a watch continues from a version.
	Resume(ctx context.Context, version string) error
	RecordVersion(version string) // call it before the sink receives an object of this version
	// CompareLists compares the versions of two lists. It reports whether the second list is older.
	CompareLists(before, now string) bool
	WatchEpoch() <-chan struct{} // receives a value when all earlier versions are invalid
}

// noHistory is a History that never detects a loss.
type noHistory struct{}

func (noHistory) SuspectServer()                       {}
func (noHistory) VerifyServer(context.Context) error   { return nil }
func (noHistory) Resume(context.Context, string) error { return nil }
func (noHistory) RecordVersion(string)                 {}
func (noHistory) CompareLists(string, string) bool     { return false }
func (noHistory) WatchEpoch() <-chan struct{}          { return nil }

// APIConfig contains the dependencies of an API.
type APIConfig struct {
	Client   *kube.Client
	Node     string          // name of this node
	Sink     APISink         // receives the pods to run
	Observer Observer        // may be nil
	History  History         // nil if a loss of history is not detected
	Relist   <-chan struct{} // a value requests a new list; may be nil
	Retry    kube.LinkSignal // a value means that the server may answer again; if zero, only a timer triggers retries
	Log      *slog.Logger
}

// API reads the pods that are bound to this node from the API server.
type API struct {
	APIConfig
	version   string // resource version from which the watch continues; empty if the source must list first
	newest    string // version of the last list or event; the next list is compared with it
	separate  separation
	warned    bool // true if the current outage was logged
	rewritten <-chan struct{}
}

// NewAPI validates the configuration.
func NewAPI(c APIConfig) (*API, error) {
	if c.Client == nil || c.Node == "" || c.Sink == nil {
		return nil, errors.New("pods of the API server: client, node or sink is missing")
	}
	if c.History == nil {
		c.History = noHistory{}
	}
	return &API{APIConfig: c, rewritten: c.History.WatchEpoch()}, nil
}

// Run delivers the pods to the sink until ctx ends. When a watch ends, the next watch continues from the last version. Run lists the pods
// only if the server cannot continue from that version, or if the sink has returned an error.
func (a *API) Run(ctx context.Context) error {
	again := retry.Backoff{FirstWindow: apiFirstRetry, SecondWindow: apiLastRetry / 4, MaxWindow: apiLastRetry}
	for {
		began := time.Now()
		err := a.listThenWatch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.History.SuspectServer()
		a.logOutage(err)
		if time.Since(began) > apiSteady {
			again.Reset()
		}
		if _, err := kube.WaitForRetry(ctx, &again, err, a.Retry); err != nil {
			return nil
		}
	}
}

func (a *API) logOutage(err error) {
	switch {
	case err == nil:
		a.warned = false
	case a.warned, errors.Is(err, kube.ErrNoLink):
		a.Log.Debug("the pods of the API server cannot be followed yet", "error", err)
	default:
		a.Log.Warn("the pods of the API server cannot be followed: the known pods are kept", "error", err)
		a.warned = true
	}
}

// listThenWatch lists the pods if necessary, and watches them until the watch ends.
func (a *API) listThenWatch(ctx context.Context) error {
	if err := a.History.VerifyServer(ctx); err != nil {
		return err
	}
	a.dropVersion()
	if a.version != "" {
		if err := a.History.Resume(ctx, a.newest); err != nil {
			return err
		}
		a.dropVersion()
	}
	w, err := a.listAndWatch(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	a.logOutage(nil)
	for {
		batch, open := a.nextBatch(ctx, w.ResultChan())
		if err := a.applyBatch(ctx, batch); err != nil {
			return a.watchError(err)
		}
		if !open {
			return nil
		}
	}
}

func (a *API) listOptions(version string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.Node, ResourceVersion: version, AllowWatchBookmarks: true}
}

// dropVersion drops the version after a change of the history or a request for a new list.
func (a *API) dropVersion() {
	select {
	case <-a.rewritten:
		a.version, a.newest = "", ""
	case <-a.Relist:
		a.version = ""
	default:
	}
}

// watchError drops the version if the error requires a new list. It returns the error with a description.
func (a *API) watchError(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, errNotTaken) {
		a.version = ""
	}
	return fmt.Errorf("watch the pods of this node: %w", err)
}

// errNotTaken means that the sink has returned an error for an update.
var errNotTaken = errors.New("not taken")

func lacksVersion(version string) bool { return version == "" || version == "0" }

// nextBatch waits for an event. It returns the event and all queued events. It ends the watch after a change of the history, because the
// watch may not receive further events.
func (a *API) nextBatch(ctx context.Context, events <-chan apiwatch.Event) (batch []apiwatch.Event, open bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case <-a.rewritten:
		a.version, a.newest = "", ""
		return nil, false
	case <-a.Relist:
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

// applyBatch applies a batch of events. It uses only the newest event of each pod.
func (a *API) applyBatch(ctx context.Context, batch []apiwatch.Event) error {
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
	a.History.RecordVersion(version)
	if err := a.notifyObserver(ctx, latest); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	a.version, a.newest = version, version
	return failed
}

func (a *API) notifyObserver(ctx context.Context, latest map[types.UID]apiwatch.Event) error {
	var changed []desired.SourcePod
	var gone []desired.RemovedPod
	uids := slices.Sorted(maps.Keys(latest))
	for _, uid := range uids {
		p := latest[uid].Object.(*v1.Pod)
		wanted, ours := sourcePodOf(p)
		switch {
		case !ours:
		case latest[uid].Type == apiwatch.Deleted:
			gone = append(gone, desired.RemovedPod{UID: uid, Ending: endingOf(p)})
		default:
			changed = append(changed, wanted)
		}
	}
	if len(changed)+len(gone) > 0 {
		if err := a.Sink.Update(ctx, desired.API, changed, gone); err != nil {
			return err
		}
	}
	if a.Observer == nil {
		return nil
	}
	for _, uid := range uids {
		p := latest[uid].Object.(*v1.Pod)
		if latest[uid].Type == apiwatch.Deleted {
			a.Observer.PodGone(p)
		} else {
			a.Observer.PodSeen(p)
		}
	}
	return nil
}
