package resourceslice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

// delay is how long a driver may be away, as with a kubelet: it may be replaced just now.
const delay = 30 * time.Second

// Config is what a Sweeper needs.
type Config struct {
	Client *kube.Client
	Node   string          // its name
	Retry  <-chan struct{} // the server may answer again; nil: never said
	Log    *slog.Logger
}

// A Sweeper is safe for concurrent use. Its methods never block.
type Sweeper struct {
	Config
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	here   map[string]bool      // drivers that can be reached
	gone   map[string]time.Time // others that were, and from when on their slices go
	others time.Time            // from when on those of drivers that never came go; zero: they went
}

// New asks nobody.
func New(c Config) (*Sweeper, error) {
	if c.Client == nil || c.Node == "" || c.Log == nil {
		return nil, errors.New("resourceslice: a part of the configuration is missing")
	}
	return &Sweeper{Config: c, wake: make(chan struct{}, 1), here: map[string]bool{}, gone: map[string]time.Time{}, others: time.Now().Add(delay)}, nil
}

// Here says that a driver can be reached.
func (s *Sweeper) Here(driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.here[driver] = true
	delete(s.gone, driver)
}

// Gone says that it cannot any more.
func (s *Sweeper) Gone(driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.here[driver] {
		return
	}
	delete(s.here, driver)
	s.gone[driver] = time.Now().Add(delay)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run deletes until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	again := retry.Backoff{First: time.Second, Soon: 30 * time.Second, Most: 5 * time.Minute}
	failing := false // so that an outage is one line of the log
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		for {
			err := s.sweep(ctx)
			if err == nil {
				again.Reset()
				failing = false
				break
			}
			if ctx.Err() == nil && !failing {
				failing = true
				s.Log.Warn("ResourceSlices of drivers that are gone cannot be deleted, trying again", "node", s.Node, "error", err)
			}
			if _, ended := kube.Wait(ctx, &again, err, s.Retry); ended != nil {
				return nil
			}
		}
		timer.Stop()
		if next := s.next(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// next is when something is due; zero: nothing is.
func (s *Sweeper) next() (first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.others
	for _, at := range s.gone {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// sweep deletes what is due.
func (s *Sweeper) sweep(ctx context.Context) error {
	s.mu.Lock()
	now := time.Now()
	var due []string
	for driver, at := range s.gone {
		if !at.After(now) {
			due = append(due, driver)
		}
	}
	var known []string // of those that are away since the start the time may not have come
	rest := !s.others.IsZero() && !s.others.After(now)
	if rest {
		known = slices.Concat(slices.Collect(maps.Keys(s.here)), slices.Collect(maps.Keys(s.gone)))
	}
	s.mu.Unlock()
	slices.Sort(due)
	for _, driver := range due {
		if s.back(driver) {
			continue
		}
		if err := s.delete(ctx, selection.Equals, driver); err != nil {
			return err
		}
		s.Log.Info("DRA driver has not come back: its ResourceSlices are deleted", "driver", driver, "node", s.Node)
		s.mu.Lock()
		delete(s.gone, driver)
		s.mu.Unlock()
	}
	if !rest {
		return nil
	}
	slices.Sort(known)
	if err := s.delete(ctx, selection.NotEquals, known...); err != nil {
		return err
	}
	s.mu.Lock()
	s.others = time.Time{}
	s.mu.Unlock()
	return nil
}

// back reports whether a driver came back, or went anew.
func (s *Sweeper) back(driver string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, gone := s.gone[driver]
	return !gone || at.After(time.Now())
}

func (s *Sweeper) delete(ctx context.Context, op selection.Operator, drivers ...string) error {
	which := []fields.Selector{fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, s.Node)}
	for _, d := range drivers {
		one := fields.OneTermEqualSelector
		if op == selection.NotEquals {
			one = fields.OneTermNotEqualSelector
		}
		which = append(which, one(resourcev1.ResourceSliceSelectorDriver, d))
	}
	err := kube.DeleteAll[resourcev1.ResourceSlice](ctx, s.Client, "", metav1.ListOptions{FieldSelector: fields.AndSelectors(which...).String()})
	if err != nil && !apierrors.IsNotFound(err) { // a server without dynamic resources has none
		return fmt.Errorf("delete the ResourceSlices of this node: %w", err)
	}
	return nil
}
