package kube

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Watch starts a watch of objects of a type. It returns when the server has accepted the watch, or with an error after half a minute
// without data. The channel of the watch is closed when the server ends the watch, the connection breaks, ctx ends, or Stop is called. If
// the resource version is too old, the last event has the type watch.Error. apierrors.FromObject converts its object to an error with code
// 410. The caller must then list again.
func Watch[T any, P Object[T]](ctx context.Context, c *Client, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	return beginWatch(ctx, c, P(new(T)), o, func(r *rest.Request) *rest.Request { return inNamespace(r, namespace) })
}

// WatchMetadata is like Watch, but it requests only the metadata of objects. Use meta.Accessor to read the object of an event.
func WatchMetadata[T any, P Object[T]](ctx context.Context, c *Client, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	return beginWatch(ctx, c, P(new(T)), o, func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespace).SetHeader("Accept", c.acceptHeader(metadataOnly))
	})
}

// beginWatch starts a watch in the version of the resource that the API server serves.
func beginWatch(
	ctx context.Context, c *Client, of runtime.Object, o metav1.ListOptions, build func(*rest.Request) *rest.Request,
) (w watch.Interface, err error) {
	err = c.inVersion(of, func(gvr schema.GroupVersionResource) error {
		r, err := newRequest(c, gvr, "GET")
		if err == nil {
			w, err = startWatch(ctx, c, build(r), o)
		}
		return err
	})
	return w, err
}

func startWatch(ctx context.Context, c *Client, r *rest.Request, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	var unanswered error
	p := c.newTimeouts(context.WithValue(ctx, noAnswerKey{}, &unanswered))
	// The rate limit applies to requests, not to watches.
	body, err := r.VersionedParams(&o, c.params).Throttle(flowcontrol.NewFakeAlwaysRateLimiter()).Stream(p)
	late := p.stopTimeout()
	if err == nil {
		err = unanswered
	}
	if err != nil || late != nil {
		if body != nil {
			_ = body.Close()
		}
		p.endRequest()
		return nil, unwrapRefused(cmp.Or(late, err))
	}
	return &releasingWatch{Interface: newEvents(body, p, c.serializer()), end: p.endRequest}, nil
}

// A releasingWatch is a watch whose Stop also releases the context of its request.
type releasingWatch struct {
	watch.Interface
	end func()
}

// Stop ends the watch.
func (w *releasingWatch) Stop() {
	w.end()
	w.Interface.Stop()
}
