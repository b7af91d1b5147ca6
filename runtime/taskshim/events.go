package taskshim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	eventsapi "github.com/containerd/containerd/api/events"
	forward "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Events receives the events of containerd shims. Only the out-of-memory event is used. Exits are
// read with the task API.
type Events struct {
	socket     string
	server     *ttrpc.Server
	serveEnded chan struct{}

	mu  sync.Mutex
	oom map[string]bool // IDs of containers with an out-of-memory event
}

// maxOOM is the maximum number of stored container IDs. The method OOM removes an ID, but it may
// not be called for every container.
const maxOOM = 1024

// ServeEvents listens on a unix socket until Close.
func ServeEvents(socket string) (*Events, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for events of containerd shims: %w", err)
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()))
	if err != nil {
		l.Close()
		return nil, err
	}
	e := &Events{socket: socket, server: server, serveEnded: make(chan struct{}), oom: map[string]bool{}}
	forward.RegisterTTRPCEventsService(server, e)
	go func() {
		defer close(e.serveEnded)
		server.Serve(context.Background(), l) // blocks until Close
	}()
	return e, nil
}

// Forward receives one event.
func (e *Events) Forward(_ context.Context, r *forward.ForwardRequest) (*emptypb.Empty, error) {
	if env := r.GetEnvelope(); env.GetTopic() == "/tasks/oom" {
		var oom eventsapi.TaskOOM
		if err := proto.Unmarshal(env.GetEvent().GetValue(), &oom); err != nil {
			return nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.oom) < maxOOM {
			e.oom[oom.ContainerID] = true
		}
	}
	return &emptypb.Empty{}, nil
}

// OOM reports whether a container has run out of memory since the last call for this container.
func (e *Events) OOM(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	killed := e.oom[id]
	delete(e.oom, id)
	return killed
}

// Close closes and removes the socket. Shims keep trying to connect.
func (e *Events) Close() {
	e.server.Close()
	<-e.serveEnded
	os.Remove(e.socket)
}
