package configsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// pollInterval is the interval between reads of a ConfigMap that the node may not watch.
	pollInterval = 5 * time.Minute
	// steadyTime is the minimum duration of a watch that resets the back-off.
	steadyTime = 10 * time.Second
)

// Config contains the dependencies of a Source.
type Config struct {
	Client *kube.Client
	// WantedName returns the name of the ConfigMap to follow, or an empty name if no ConfigMap is wanted.
	WantedName func() (namespace, name string)
	// Changed receives a value when the result of WantedName may have changed. Its capacity is 1.
	Changed <-chan struct{}
	// OnNone is called when WantedName returns an empty name.
	OnNone func()
	// Receive is called with the ConfigMap after the first read, and after each change. It must not keep a reference to the ConfigMap.
	Receive func(*v1.ConfigMap)
	// OnProblem receives the reason why the ConfigMap cannot be followed, and "" when it can be followed again.
	OnProblem func(why string)
	Retry     kube.LinkSignal // a value means that the server may answer again; if zero, only a timer triggers retries
	Log       *slog.Logger
}

// A Source follows one ConfigMap.
type Source struct{ c Config }

// New validates the configuration. It sends no request.
func New(c Config) (*Source, error) {
	if c.Client == nil || c.WantedName == nil || c.OnNone == nil || c.Receive == nil || c.OnProblem == nil || c.Log == nil {
		return nil, errors.New("configsource: a part of the configuration is missing")
	}
	return &Source{c}, nil
}

// errOther ends the watch of a ConfigMap, so that Run calls WantedName again.
var errOther = errors.New("another ConfigMap is wanted")

// Run follows the ConfigMap until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	again := retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry}
	for ctx.Err() == nil {
		namespace, name := s.c.WantedName()
		if name == "" {
			s.c.OnNone()
			select {
			case <-ctx.Done():
			case <-s.c.Changed:
			}
			continue
		}
		began := time.Now()
		err := s.readAndWatch(ctx, namespace, name)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errOther) {
			again.Reset()
			continue
		}
		if err != nil && !errors.Is(err, kube.ErrNoLink) { // package link reports a missing link
			s.c.Log.Debug("the ConfigMap cannot be followed", "configMap", namespace+"/"+name, "error", err)
			s.c.OnProblem(err.Error())
		}
		if time.Since(began) > steadyTime {
			again.Reset()
		}
		if _, err := kube.WaitForRetry(ctx, &again, err, s.c.Retry); err != nil {
			return nil
		}
	}
	return nil
}

// readAndWatch reads the ConfigMap and watches it until the watch ends.
func (s *Source) readAndWatch(ctx context.Context, namespace, name string) error {
	version := ""
	cm, err := kube.Get[v1.ConfigMap](ctx, s.c.Client, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		s.c.OnProblem("there is no such ConfigMap")
	case err != nil:
		return fmt.Errorf("read the ConfigMap: %w", err)
	default:
		version = cm.ResourceVersion
		s.deliver(cm, name)
	}
	w, err := kube.Watch[v1.ConfigMap](ctx, s.c.Client, namespace, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: version, AllowWatchBookmarks: true,
	})
	if apierrors.IsForbidden(err) {
		return s.waitForRead(ctx)
	}
	if err != nil {
		return fmt.Errorf("watch the ConfigMap: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.c.Changed:
			if ns, n := s.c.WantedName(); ns != namespace || n != name {
				return errOther
			}
		case e, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := s.handleEvent(e, name); err != nil {
				return err
			}
		}
	}
}

// waitForRead waits until the next read of a ConfigMap that the node may not watch.
func (s *Source) waitForRead(ctx context.Context) error {
	t := time.NewTimer(retry.Jitter(pollInterval))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-s.c.Changed:
	}
	return errOther
}

func (s *Source) handleEvent(e watch.Event, name string) error {
	cm, ok := e.Object.(*v1.ConfigMap)
	switch {
	case e.Type == watch.Bookmark:
	case e.Type == watch.Error || !ok:
		return fmt.Errorf("watch the ConfigMap: %w", apierrors.FromObject(e.Object))
	case e.Type == watch.Deleted:
		s.c.OnProblem("it was deleted; the configuration that it had sent to the node stays")
	default:
		s.deliver(cm, name)
	}
	return nil
}

// deliver passes the ConfigMap to Receive. It ignores a ConfigMap with another name than requested, which a faulty server may send.
func (s *Source) deliver(cm *v1.ConfigMap, name string) {
	if cm.Name != name {
		return
	}
	s.c.OnProblem("")
	s.c.Receive(cm)
}
