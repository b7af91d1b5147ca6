package podsapi

import (
	"cmp"
	"context"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/islet-edge/islet/agent/plugin/rpc"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/socket"
	"github.com/islet-edge/islet/internal/sorting"
)

const (
	maxWatchers = 16
	// sendTime is the time within which a watcher has to read an event after the buffers of its connection are full.
	sendTime = 30 * time.Second
)

// Pods provides the pods of this node and their statuses. *pods.Pods implements it.
type Pods interface {
	Complete() bool
	ChangedSince(than uint64) (changed []*v1.Pod, version uint64)
	Find(types.UID) *v1.Pod
	IsWanted(types.UID) bool
	Changed() <-chan struct{}
}

// Config is the input of Open.
type Config struct {
	Config  *config.Config
	Sockets *socket.Sockets
	Pods    Pods
}

// A Server serves the pods API. A nil *Server is valid: it does nothing.
type Server struct {
	c        Config
	s        *rpc.Server
	sendTime time.Duration
	counts   counts
	watchers watchers
	api.UnimplementedPodsServer
}

// Open opens the socket. It returns nil if the feature gate is off.
func Open(c Config) (*Server, error) {
	if !c.Config.GateEnabled("PodsAPI") {
		return nil, nil
	}
	s, err := rpc.Listen(filepath.Join(c.Config.Dirs.Root, "pods-api", "pods-api.sock"), c.Sockets)
	if err != nil {
		return nil, err
	}
	return &Server{c: c, s: s, sendTime: sendTime, counts: newCounts()}, nil
}

// Close closes the socket if Run is not called.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	return s.s.Close()
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	defer s.watchers.close()
	return s.s.Run(ctx, rpc.Reject, func(g *grpc.Server) { api.RegisterPodsServer(g, s) })
}

// ListPods returns all pods.
func (s *Server) ListPods(context.Context, *api.ListPodsRequest) (out *api.ListPodsResponse, err error) {
	defer func() { s.counts.count(s.counts.list, err) }()
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	out = &api.ListPodsResponse{}
	for _, pod := range s.sortedPods() {
		b, err := encode(pod)
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, b)
	}
	return out, nil
}

// GetPod returns the pod with a UID.
func (s *Server) GetPod(_ context.Context, q *api.GetPodRequest) (out *api.GetPodResponse, err error) {
	defer func() { s.counts.count(s.counts.get, err) }()
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	pod := s.c.Pods.Find(types.UID(q.PodUID))
	if pod == nil {
		return nil, status.Errorf(codes.NotFound, "pod with UID %.80q not found", q.PodUID)
	}
	b, err := encode(pod)
	return &api.GetPodResponse{Pod: b}, err
}

func (s *Server) checkReady() error {
	if !s.c.Pods.Complete() {
		return status.Error(codes.FailedPrecondition, "islet does not know all pods of this node yet: try again")
	}
	return nil
}

func (s *Server) sortedPods() []*v1.Pod {
	list, _ := s.c.Pods.ChangedSince(0)
	sorting.By(list, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

func encode(pod *v1.Pod) ([]byte, error) {
	b, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return b, nil
}

// watchers counts the running calls of WatchPods.
type watchers struct {
	mu     sync.Mutex
	n      int
	closed bool
	group  sync.WaitGroup
}

// addWatcher adds a watcher. If there are too many watchers, it returns an error for the client.
func (w *watchers) addWatcher() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return status.Error(codes.Unavailable, "islet is stopping")
	case w.n == maxWatchers:
		return status.Errorf(codes.ResourceExhausted, "there are %d watchers of pods already", maxWatchers)
	}
	w.n++
	w.group.Add(1)
	return nil
}

// removeWatcher removes a watcher.
func (w *watchers) removeWatcher() {
	w.mu.Lock()
	w.n--
	w.mu.Unlock()
	w.group.Done()
}

// close rejects new watchers and waits until all have ended.
func (w *watchers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.group.Wait()
}
