package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/sorting"
)

const (
	// initialSilence is the maximum time between two initial events. A server that does not know such events
	// never sends the last one.
	initialSilence = 30 * time.Second
	// initialTime is the maximum time for all initial events. Without this limit, a server could send events that need no memory, such as
	// bookmarks, forever. The node would then never get its pods.
	initialTime = 10 * time.Minute
	// mostInitial is the maximum memory of the initial objects, in bytes. Unlike the pages of a list, they do not use the AnswerBudget.
	mostInitial = 4 << 20
)

// ErrNoWatchList means that the server does not support WatchList, or has too many objects for it. The caller should use List and Watch.
var ErrNoWatchList = errors.New("the objects cannot be listed and watched in one request")

// WatchList reads all objects of a type, and then watches their changes, with one request. It returns the newest state, and its resource
// version. An API server of version 1.37 compresses such an answer even if it is small, and also compresses the later events. The watch
// ends as described at Watch. Namespace and options have the same meaning as for List. See
// https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists.
func WatchList[T any, P Object[T]](
	ctx context.Context, c *Client, namespace string, o metav1.ListOptions,
) (items []T, version string, w watch.Interface, err error) {
	o.SendInitialEvents, o.ResourceVersionMatch, o.AllowWatchBookmarks = new(true), metav1.ResourceVersionMatchNotOlderThan, true
	w, err = Watch[T, P](ctx, c, namespace, o)
	if err != nil {
		return nil, "", nil, watchListError(err)
	}
	all := initialObjects[T, P]{items: map[types.NamespacedName]P{}}
	if version, err = all.read(ctx, w); err != nil {
		w.Stop()
		return nil, "", nil, watchListError(err)
	}
	names := slices.Collect(maps.Keys(all.items))
	sorting.By(names, byName)
	for _, name := range names {
		items = append(items, *all.items[name])
	}
	return items, version, w, nil
}

// watchListError adds ErrNoWatchList to an answer that rejects the options.
func watchListError(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("%w: %w", ErrNoWatchList, err)
	}
	return err
}

// initialObjects collects the objects of the initial events.
type initialObjects[T any, P Object[T]] struct {
	items  map[types.NamespacedName]P
	memory int64
}

// read reads the initial events of a watch. It returns the resource version up to which the collected objects are complete.
func (s *initialObjects[T, P]) read(ctx context.Context, w watch.Interface) (version string, err error) {
	silent := time.NewTimer(initialSilence)
	defer silent.Stop()
	late := time.NewTimer(initialTime)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-silent.C:
			return "", fmt.Errorf("%w: no event in %v", ErrNoWatchList, initialSilence)
		case <-late.C:
			return "", fmt.Errorf("%w: the initial events were not complete after %v", ErrNoWatchList, initialTime)
		case e, open := <-w.ResultChan():
			if !open {
				return "", errors.New("the watch ended before its initial events were complete")
			}
			if version, err = s.addEvent(e); err != nil || version != "" {
				return version, err
			}
		}
		silent.Reset(initialSilence)
	}
}

// addEvent adds the object of an event. For the last initial event, it returns the resource version.
func (s *initialObjects[T, P]) addEvent(e watch.Event) (version string, err error) {
	p, is := e.Object.(P)
	if e.Type == watch.Error || !is {
		err := apierrors.FromObject(e.Object)
		if apierrors.IsResourceExpired(err) { // an event is too long, or the server has lost the version
			err = fmt.Errorf("%w: %w", ErrNoWatchList, err)
		}
		return "", err
	}
	m, err := meta.Accessor(p)
	if err != nil {
		return "", err
	}
	name := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
	switch e.Type {
	case watch.Bookmark:
		if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return m.GetResourceVersion(), nil
		}
	case watch.Deleted:
		delete(s.items, name)
	default:
		s.items[name] = p
		// Replaced objects are counted, too. Otherwise a server could send events forever.
		if s.memory += inputweight.SizeOf(p); s.memory > mostInitial {
			return "", fmt.Errorf("%w: they use more than %d MiB", ErrNoWatchList, mostInitial>>20)
		}
	}
	return "", nil
}

func byName(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
