package kube

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Watch begins to watch objects of a type. It returns when the server has accepted
// the watch, or after half a minute without an answer, with an error. The watch ends,
// and its channel is closed, when the server, the connection or ctx ends, or by Stop.
// A watch that fell behind ends with an event of type watch.Error, which
// apierrors.FromObject turns into an error (410: list anew).
func Watch[T any, P Object[T]](ctx context.Context, c *Client, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	r, err := request(c, P(new(T)), "GET")
	if err != nil {
		return nil, err
	}
	return begin(ctx, c, at(r, namespace), o)
}

// WatchMetadata is a Watch of which only the metadata of objects counts: meta.Accessor
// gives that of an event's object.
func WatchMetadata[T any, P Object[T]](ctx context.Context, c *Client, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	r, err := request(c, P(new(T)), "GET")
	if err != nil {
		return nil, err
	}
	return begin(ctx, c, at(r, namespace).SetHeader("Accept", metadataOnly), o)
}

func begin(ctx context.Context, c *Client, r *rest.Request, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	var unanswered error
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, noAnswer{}, &unanswered))
	late := time.AfterFunc(answer, func() { cancel(context.DeadlineExceeded) })
	w, err := r.VersionedParams(&o, c.params).Watch(ctx)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err == nil {
		err = unanswered // the request may take it for an empty watch
	}
	if err != nil {
		if w != nil {
			w.Stop()
		}
		cancel(nil)
		return nil, plain(err)
	}
	return &watching{Interface: w, end: sync.OnceFunc(func() { cancel(nil) })}, nil
}

// watching frees the context when it is stopped.
type watching struct {
	watch.Interface
	end func()
}

// Stop ends the watch.
func (w *watching) Stop() {
	w.end()
	w.Interface.Stop()
}
