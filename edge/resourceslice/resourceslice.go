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

// deletionDelay is the time between the disappearance of a driver and the deletion of its slices. A kubelet uses the same value.
const deletionDelay = 30 * time.Second

// Config contains the dependencies of a Sweeper.
type Config struct {
	Client *kube.Client
	Node   string          // name of this node
	Retry  kube.LinkSignal // a value means that the server may answer again; if zero, only a timer triggers retries
	Log    *slog.Logger
}

// A Sweeper deletes the slices of missing drivers. It is safe for concurrent use. Only the method Run blocks.
type Sweeper struct {
	Config
	wake chan struct{} // capacity 1

	mu               sync.Mutex
	reachableDrivers map[string]bool      // reachable drivers
	deletionTimes    map[string]time.Time // deletion time of the slices of each driver that became unreachable
	othersDeletion   time.Time            // deletion time of the slices of all other drivers; zero after the deletion
}

// New returns a Sweeper. It sends no request.
func New(c Config) (*Sweeper, error) {
	if c.Client == nil || c.Node == "" || c.Log == nil {
		return nil, errors.New("resourceslice: a part of the configuration is missing")
	}
	return &Sweeper{
		Config: c, wake: make(chan struct{}, 1), reachableDrivers: map[string]bool{}, deletionTimes: map[string]time.Time{},
		othersDeletion: time.Now().Add(deletionDelay),
	}, nil
}

// DriverConnected records that a driver is reachable.
func (s *Sweeper) DriverConnected(driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reachableDrivers[driver] = true
	delete(s.deletionTimes, driver)
}

// DriverGone records that a driver has become unreachable.
func (s *Sweeper) DriverGone(driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reachableDrivers[driver] {
		return
	}
	delete(s.reachableDrivers, driver)
	s.deletionTimes[driver] = time.Now().Add(deletionDelay)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run deletes slices until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	again := retry.Backoff{FirstWindow: time.Second, SecondWindow: 30 * time.Second, MaxWindow: 5 * time.Minute}
	failing := false // true during an outage, which is logged once
	timer := time.NewTimer(deletionDelay)
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
				s.Log.Warn("the ResourceSlices of missing drivers cannot be deleted; the deletion is retried", "node", s.Node, "error", err)
			}
			if _, ended := kube.WaitForRetry(ctx, &again, err, s.Retry); ended != nil {
				return nil
			}
		}
		timer.Stop()
		if next := s.nextDeletion(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// nextDeletion returns the time of the next deletion, or zero if none is scheduled.
func (s *Sweeper) nextDeletion() (first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.othersDeletion
	for _, at := range s.deletionTimes {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// sweep deletes the slices that are due.
func (s *Sweeper) sweep(ctx context.Context) error {
	s.mu.Lock()
	now := time.Now()
	var due []string
	for driver, at := range s.deletionTimes {
		if !at.After(now) {
			due = append(due, driver)
		}
	}
	var knownDrivers []string // drivers whose slices are not due, or are deleted by a request for that driver
	rest := !s.othersDeletion.IsZero() && !s.othersDeletion.After(now)
	if rest {
		knownDrivers = slices.Concat(slices.Collect(maps.Keys(s.reachableDrivers)), slices.Collect(maps.Keys(s.deletionTimes)))
	}
	s.mu.Unlock()
	slices.Sort(due)
	for _, driver := range due {
		if s.hasReturned(driver) {
			continue
		}
		if err := s.delete(ctx, selection.Equals, driver); err != nil {
			return err
		}
		s.Log.Info("a DRA driver has not registered again: its ResourceSlices were deleted", "driver", driver, "node", s.Node)
		s.mu.Lock()
		delete(s.deletionTimes, driver)
		s.mu.Unlock()
	}
	if !rest {
		return nil
	}
	slices.Sort(knownDrivers)
	if err := s.delete(ctx, selection.NotEquals, knownDrivers...); err != nil {
		return err
	}
	s.mu.Lock()
	s.othersDeletion = time.Time{}
	s.mu.Unlock()
	return nil
}

// hasReturned reports whether a driver has registered again since the deletion of its slices was planned. It also returns true if the
// driver has then disappeared again, because that has planned a later deletion.
func (s *Sweeper) hasReturned(driver string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, gone := s.deletionTimes[driver]
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
	o := metav1.ListOptions{FieldSelector: fields.AndSelectors(which...).String()}
	err := kube.DeleteAll[resourcev1.ResourceSlice](ctx, s.Client, "", o)
	if err != nil && !apierrors.IsNotFound(err) { // NotFound means that the server does not have the API
		return fmt.Errorf("delete the ResourceSlices of this node: %w", err)
	}
	return nil
}
