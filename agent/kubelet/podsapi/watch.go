package podsapi

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// WatchPods sends an event for each pod, INITIAL_SYNC_COMPLETE, and then an event for each pod that is added, changed or
// removed. It ends with ResourceExhausted if the client does not read an event in time.
func (s *Server) WatchPods(_ *api.WatchPodsRequest, to grpc.ServerStreamingServer[api.WatchPodsEvent]) (err error) {
	defer func() { s.counts.count(s.counts.watch, err) }()
	if err := s.checkReady(); err != nil {
		return err
	}
	if err := s.watchers.addWatcher(); err != nil {
		return err
	}
	w := &podWatch{pods: s.c.Pods, to: to, sentPods: map[types.UID]types.NamespacedName{}, sendTimer: time.NewTimer(s.sendTime),
		sendTime: s.sendTime}
	w.sendTimer.Stop()
	ended := make(chan error, 1)
	go func() { // gRPC has no deadline for sending. A blocked call of Send ends when this method has returned.
		defer s.watchers.removeWatcher()
		ended <- w.run()
	}()
	select {
	case err := <-ended:
		return err
	case <-w.sendTimer.C:
		s.counts.dropped.Inc()
		return status.Errorf(codes.ResourceExhausted, "the client has not read an event for %s: watch again", s.sendTime)
	}
}

// A podWatch is a running call of WatchPods.
type podWatch struct {
	pods      Pods
	to        grpc.ServerStreamingServer[api.WatchPodsEvent]
	sentPods  map[types.UID]types.NamespacedName // the pods that were sent and not removed since
	version   uint64                             // of the pods that were sent
	sendTimer *time.Timer                        // timeout of the event that is being sent
	sendTime  time.Duration
}

// run sends events until the client ends the call.
func (w *podWatch) run() error {
	for first := true; ; first = false {
		changed := w.pods.Changed()
		if err := w.sendChanges(); err != nil {
			return err
		}
		if first {
			if err := w.send(api.EventType_INITIAL_SYNC_COMPLETE, nil); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-w.to.Context().Done():
			return status.FromContextError(w.to.Context().Err()).Err()
		}
	}
}

// sendChanges sends an event for each pod that was removed, added or changed since its last call.
func (w *podWatch) sendChanges() error {
	for uid, name := range w.sentPods {
		if !w.pods.IsWanted(uid) {
			delete(w.sentPods, uid)
			gone := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: uid}}
			if err := w.send(api.EventType_DELETED, gone); err != nil {
				return err
			}
		}
	}
	changed, version := w.pods.ChangedSince(w.version)
	for _, pod := range changed {
		kind := api.EventType_MODIFIED
		if _, known := w.sentPods[pod.UID]; !known {
			kind = api.EventType_ADDED
			w.sentPods[pod.UID] = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		}
		if err := w.send(kind, pod); err != nil {
			return err
		}
	}
	w.version = version
	return nil
}

// send sends an event. The pod may be nil.
func (w *podWatch) send(kind api.EventType, pod *v1.Pod) error {
	e := &api.WatchPodsEvent{Type: kind}
	if pod != nil {
		b, err := encode(pod)
		if err != nil {
			return err
		}
		e.Pod = b
	}
	w.sendTimer.Reset(w.sendTime)
	defer w.sendTimer.Stop()
	return w.to.Send(e)
}
