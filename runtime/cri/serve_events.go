package cri

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	maxEventStreams = 16
	// maxEventBytes is the maximum size of the queued events of a client. It is enough for more
	// than a thousand events.
	maxEventBytes = 4 << 20
)

// eventStreams counts the clients of GetContainerEvents.
type eventStreams struct {
	ending <-chan struct{} // closed when the server ends

	mu sync.Mutex
	n  int
}

func (e *eventStreams) addStream() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n == maxEventStreams {
		return false
	}
	e.n++
	return true
}

func (e *eventStreams) removeStream() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n--
}

// GetContainerEvents streams all events that happen after it has sent the header. When the queue of
// the client is full, it sends the queued events and then returns an error, so that the client
// lists all objects and subscribes again.
func (s runtimeServer) GetContainerEvents(_ *api.GetEventsRequest, to api.RuntimeService_GetContainerEventsServer) error {
	events, ok := s.Runtime.(Subscriber)
	if !ok {
		return errgrpc.ToGRPC(fmt.Errorf("container events: %w", errdefs.ErrNotImplemented))
	}
	if !s.events.addStream() {
		return errgrpc.ToGRPC(fmt.Errorf("container events: there are %d clients already: %w",
			maxEventStreams, errdefs.ErrResourceExhausted))
	}
	defer s.events.removeStream()
	q := backlog{wake: make(chan struct{}, 1)}
	defer events.Subscribe(q.put)()
	if err := to.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case <-q.wake:
		case <-to.Context().Done():
			return to.Context().Err()
		case <-s.events.ending: // otherwise the end of the server waits for the client
			return errgrpc.ToGRPC(fmt.Errorf("container events: the runtime ends: %w", errdefs.ErrUnavailable))
		}
		list, full := q.take()
		for _, e := range list {
			if err := to.Send(e); err != nil {
				return err
			}
		}
		if full {
			return errgrpc.ToGRPC(fmt.Errorf("container events: the client is more than %d MiB behind: "+
				"list everything and subscribe again: %w",
				maxEventBytes>>20, errdefs.ErrUnavailable))
		}
	}
}

// A backlog is the queue of events for a client. Once an event exceeds the maximum size, that event
// and all later events are dropped.
type backlog struct {
	wake chan struct{}

	mu   sync.Mutex
	list []*api.ContainerEventResponse
	size int
	full bool
}

// put queues an event, or drops it if the queue is full. It does not block.
func (q *backlog) put(e *api.ContainerEventResponse) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if size := proto.Size(e); !q.full && q.size+size <= maxEventBytes {
		q.list, q.size = append(q.list, e), q.size+size
	} else {
		q.full = true
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *backlog) take() (list []*api.ContainerEventResponse, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, q.list, q.size = q.list, nil, 0
	return list, q.full
}
