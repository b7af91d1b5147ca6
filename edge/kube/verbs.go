package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// metadataOnly requests only the metadata of an object, because the caller of a change knows the other fields. A server may still answer
// with the whole object. See https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches.
const metadataOnly = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// metadataLists requests only the metadata of the objects in a list.
const metadataLists = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// mediaType returns the media type of sent objects.
func (c *Client) mediaType() string {
	if c.cfg.JSON {
		return asJSON
	}
	return protobuf
}

// acceptHeader returns the Accept header of a request. If the caller passes a form of the object, such as metadataOnly, the header prefers
// this form. JSON is included because custom types have no protobuf encoding.
func (c *Client) acceptHeader(part string) string {
	list := c.mediaType()
	if part != "" {
		list += part + "," + c.mediaType()
	}
	if !c.cfg.JSON {
		list += "," + asJSON
	}
	return list
}

// Get reads an object. The namespace is empty for cluster-scoped objects. The functions of this package return the server's errors as
// errors of k8s.io/apimachinery/pkg/api/errors. A request times out after half a minute without data. There is no other time limit.
func Get[T any, P Object[T]](ctx context.Context, c *Client, namespace, name string) (*T, error) {
	return requestObject[T, P](ctx, c, P(new(T)), "GET", func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespace).Name(name)
	})
}

// GetMetadata reads the metadata of an object.
func GetMetadata[T any, P Object[T]](ctx context.Context, c *Client, namespace, name string) (*metav1.ObjectMeta, error) {
	return requestMetadata(ctx, c, P(new(T)), "GET", func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespace).Name(name)
	})
}

// Create creates an object in its namespace and returns the resulting metadata.
func Create[T any, P Object[T]](ctx context.Context, c *Client, obj *T) (*metav1.ObjectMeta, error) {
	return requestMetadata(ctx, c, P(obj), "POST", func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespaceOf(P(obj))).Body(P(obj))
	})
}

// PostReview posts an object that the server completes, such as an authenticationv1.TokenReview, and returns the completed object.
func PostReview[T any, P Object[T]](ctx context.Context, c *Client, obj *T) (*T, error) {
	return requestObject[T, P](ctx, c, P(obj), "POST", func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespaceOf(P(obj))).Body(P(obj))
	})
}

// CreateSub posts an object to a subresource of another object and returns the answer. The type parameter Owner is the type of the other
// object, such as corev1.ServiceAccount. The type parameter T is the type of the posted object, such as a token request.
func CreateSub[Owner, T any, PO Object[Owner], P Object[T]](
	ctx context.Context, c *Client, namespace, name, subresource string, obj *T,
) (*T, error) {
	return requestObject[T, P](ctx, c, PO(new(Owner)), "POST", func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespace).Name(name).SubResource(subresource).Body(P(obj))
	})
}

// Patch patches an object or a subresource and returns the resulting metadata. An apply patch requires the FieldManager option.
func Patch[T any, P Object[T]](
	ctx context.Context, c *Client, namespace, name string, kind types.PatchType, data []byte,
	o metav1.PatchOptions, subresources ...string,
) (*metav1.ObjectMeta, error) {
	return requestMetadata(ctx, c, P(new(T)), "PATCH", func(r *rest.Request) *rest.Request {
		return inNamespace(r, namespace).Name(name).SubResource(subresources...).
			SetHeader("Content-Type", string(kind)).VersionedParams(&o, c.params).Body(data)
	})
}

// Delete deletes an object.
func Delete[T any, P Object[T]](ctx context.Context, c *Client, namespace, name string, o metav1.DeleteOptions) error {
	return c.sendForVersion(ctx, P(new(T)), "DELETE", func(ctx context.Context, r *rest.Request) error {
		return inNamespace(r, namespace).Name(name).SetHeader("Accept", c.acceptHeader(metadataOnly)).Body(&o).Do(ctx).Error()
	})
}

// DeleteAll deletes all objects that match the selectors of the options, in one request. T is the type of
// the objects.
func DeleteAll[T any, P Object[T]](ctx context.Context, c *Client, namespace string, o metav1.ListOptions) error {
	return c.sendForVersion(ctx, P(new(T)), "DELETE", func(ctx context.Context, r *rest.Request) error {
		r = inNamespace(r, namespace).VersionedParams(&o, c.params).SetHeader("Accept", c.acceptHeader(metadataLists))
		return r.Body(&metav1.DeleteOptions{}).Do(ctx).Error()
	})
}

// requestMetadata sends a request for a resource and returns the metadata of the answer. The caller passes any object of the resource's
// type to select the resource.
func requestMetadata(
	ctx context.Context, c *Client, like runtime.Object, verb string, build func(*rest.Request) *rest.Request,
) (*metav1.ObjectMeta, error) {
	var out runtime.Object
	err := c.sendForVersion(ctx, like, verb, func(ctx context.Context, r *rest.Request) (err error) {
		out, err = build(r).SetHeader("Accept", c.acceptHeader(metadataOnly)).Do(ctx).Get()
		return err
	})
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(out)
	if err != nil {
		return nil, err
	}
	return &meta.AsPartialObjectMetadata(m).ObjectMeta, nil
}

// requestObject sends a request for a resource and decodes the answer. The caller passes any object of the resource's type to select the
// resource.
func requestObject[T any, P Object[T]](
	ctx context.Context, c *Client, like runtime.Object, verb string, build func(*rest.Request) *rest.Request,
) (*T, error) {
	out, err := c.request(ctx, like, func() runtime.Object { return P(new(T)) }, verb, build)
	if err != nil {
		return nil, err
	}
	return out.(P), nil
}

// request is requestObject without type parameters. newObject returns an empty object for the answer.
func (c *Client) request(
	ctx context.Context, like runtime.Object, newObject func() runtime.Object, verb string, build func(*rest.Request) *rest.Request,
) (out runtime.Object, err error) {
	err = c.sendForVersion(ctx, like, verb, func(ctx context.Context, r *rest.Request) error {
		out = newObject()
		return build(r).Do(ctx).Into(out)
	})
	return out, err
}

// sendForVersion makes a request for a resource, in the version that the API server serves, and repeats it after temporary errors. The
// caller passes any object of the resource's type to select the resource.
func (c *Client) sendForVersion(
	ctx context.Context, like runtime.Object, verb string, send func(context.Context, *rest.Request) error,
) error {
	return c.inVersion(like, func(gvr schema.GroupVersionResource) error {
		return c.sendWithRetries(ctx, verb, func(ctx context.Context) error {
			r, err := newRequest(c, gvr, verb)
			if err != nil {
				return err
			}
			return send(ctx, r)
		})
	})
}

func newRequest(c *Client, gvr schema.GroupVersionResource, verb string) (*rest.Request, error) {
	rc, err := c.restClient(gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	// Disable the retries of client-go, because they have no jitter.
	return rc.Verb(verb).Resource(gvr.Resource).MaxRetries(0), nil
}

func inNamespace(r *rest.Request, namespace string) *rest.Request {
	return r.NamespaceIfScoped(namespace, namespace != "")
}

func namespaceOf(obj runtime.Object) string {
	if o, ok := obj.(metav1.Object); ok {
		return o.GetNamespace()
	}
	return ""
}
