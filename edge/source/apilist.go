package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
)

// separateFirst and separateLast are the minimum and the maximum duration of a separation. A separation begins after a server has rejected
// a WatchList or has not completed it. The duration doubles with each failure, because a WatchList without an answer delays the list by
// half a minute.
const separateFirst, separateLast = time.Hour, 24 * time.Hour

// A separation is a period in which the pods are listed and watched with two separate requests, instead of one WatchList.
type separation struct {
	until        time.Time
	lastDuration time.Duration // duration of the last separation; 0 if the last WatchList succeeded
}

func (s *separation) begin() {
	s.lastDuration = min(max(2*s.lastDuration, separateFirst), separateLast)
	s.until = time.Now().Add(s.lastDuration)
}

// listAndWatch starts a watch. If there is no version from which the watch can continue, it first delivers all pods to the sink.
func (a *API) listAndWatch(ctx context.Context) (w apiwatch.Interface, err error) {
	if a.version == "" {
		if w, err = a.list(ctx); err != nil {
			if !errors.Is(err, kube.ErrNoLink) { // package link reports a missing link
				a.Sink.ReportFailure(desired.API, []desired.Problem{{Message: err.Error()}})
			}
			return nil, err
		}
	}
	if w == nil {
		if w, err = kube.Watch[v1.Pod](ctx, a.Client, "", a.listOptions(a.version)); err != nil {
			return nil, a.watchError(err)
		}
	}
	return w, nil
}

// list delivers all pods to the sink. It requests the newest state, not the state of the server's cache (resourceVersion 0). The cache may
// have an older state. With that state, pods would end by mistake, or ended pods would start again. The result is a watch that continues
// from the list, or nil if the server cannot list and watch in one request.
func (a *API) list(ctx context.Context) (w apiwatch.Interface, err error) {
	pods, version, w, err := a.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the pods of this node: %w", err)
	}
	if err := a.deliver(ctx, pods, version); err != nil {
		if w != nil {
			w.Stop()
		}
		return nil, err
	}
	return w, nil
}

func (a *API) read(ctx context.Context) (pods []v1.Pod, version string, w apiwatch.Interface, err error) {
	together := !time.Now().Before(a.separate.until)
	if together {
		pods, version, w, err = kube.WatchList[v1.Pod](ctx, a.Client, "", a.listOptions(""))
		if err == nil {
			a.separate = separation{}
		}
		if !errors.Is(err, kube.ErrNoWatchList) {
			return pods, version, w, err
		}
	}
	o := a.listOptions("")
	o.AllowWatchBookmarks = false
	all, err := kube.List[v1.PodList](ctx, a.Client, "", o)
	if err != nil {
		return nil, "", nil, err
	}
	if together { // the failure concerns WatchList only
		a.separate.begin()
	}
	return all.Items, all.ResourceVersion, nil, nil
}

// deliver passes all pods to the sink and the observer.
func (a *API) deliver(ctx context.Context, pods []v1.Pod, version string) error {
	if lacksVersion(version) { // an API server always sets it
		return errors.New(
			"list the pods of this node: the answer has no resourceVersion, so it is not from an API server; the known pods are kept")
	}
	if a.History.CompareLists(a.newest, version) {
		a.newest = ""
	}
	a.History.RecordVersion(version)
	var listed []desired.SourcePod
	for i := range pods {
		if p, ok := sourcePodOf(&pods[i]); ok {
			listed = append(listed, p)
		}
	}
	if err := a.Sink.Set(ctx, desired.API, listed, nil); err != nil {
		return err
	}
	a.version, a.newest = version, version
	if a.Observer != nil {
		a.Observer.PodsListed(pods)
	}
	return nil
}
