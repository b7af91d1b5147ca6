package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/internal/inputweight"
)

const (
	// Sizes of a page, in objects. A page of the usual size contains all objects of a node. The server compresses only large answers, so
	// large pages need fewer bytes. After a failed list, pages are smaller, so that a retry repeats less. A page of a few objects can still
	// be too long for one answer. Then each page has only one object.
	usualPage, smallestPage, pageFactor = 500, 5, 10
	// maxPages is the maximum number of pages of a list. Real lists of a node have far fewer.
	maxPages = 2000
)

// List reads a list in pages. T is the type of the list, such as corev1.PodList. All pages have the same resource version. If the server
// has compacted that version, the list is read again without paging. The Limit of the options is the page size. Pods and Services that are
// too large are reduced (see reduce.go). See
// https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks.
func List[T any, P Object[T]](ctx context.Context, c *Client, namespace string, o metav1.ListOptions) (*T, error) {
	all, err := c.list(ctx, func() runtime.Object { return P(new(T)) }, namespace, o)
	if err != nil {
		return nil, err
	}
	return all.(P), nil
}

// list is List without type parameters, because each instantiation would add 2 KB to the program. newList returns an empty list.
func (c *Client) list(
	ctx context.Context, newList func() runtime.Object, namespace string, o metav1.ListOptions,
) (all runtime.Object, err error) {
	if o.Limit == 0 {
		if o.Limit = c.page.Load(); o.Limit == 0 {
			o.Limit = usualPage
		}
	}
	on := &share{answers: c.answers}
	defer on.release()
	ctx = context.WithValue(ctx, listShareKey{}, on)
	all, err = c.listPages(ctx, on, newList, namespace, o)
	for isTooLarge(err) && o.Limit > 1 {
		o.Limit = max(o.Limit/pageFactor, 1)
		all, err = c.listPages(ctx, on, newList, namespace, o)
	}
	if apierrors.IsResourceExpired(err) && errors.Is(err, errContinued) {
		o.Limit = 0
		all, err = c.listPages(ctx, on, newList, namespace, o)
	}
	switch {
	case err == nil:
		c.page.Store(min(o.Limit*pageFactor, usualPage))
	case !IsAnswer(err) && !errors.Is(err, ErrNoLink) && !errors.Is(err, context.Canceled):
		c.page.Store(max(o.Limit/pageFactor, smallestPage))
	}
	return all, err
}

// errContinued marks an error that occurred after the first page of a list.
var errContinued = errors.New("a further page")

// isTooLarge reports whether a page was rejected because of its size or memory.
func isTooLarge(err error) bool {
	return errors.Is(err, errTooLong) || errors.Is(err, inputweight.ErrTooHeavy)
}

func (c *Client) listPages(
	ctx context.Context, on *share, newList func() runtime.Object, namespace string, o metav1.ListOptions,
) (first runtime.Object, err error) {
	var items []runtime.Object
	memory, seen := int64(0), map[string]bool{}
	for n := 0; n < maxPages; n++ {
		page, err := c.request(ctx, newList(), newList, "GET", func(r *rest.Request) *rest.Request {
			return inNamespace(r, namespace).VersionedParams(&o, c.params)
		})
		if err != nil && n > 0 {
			return nil, fmt.Errorf("%w: %w", errContinued, err)
		} else if err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		o.Continue = m.GetContinue()
		if n == 0 && o.Continue == "" {
			return page, nil
		}
		more, err := meta.ExtractList(page)
		if err != nil {
			return nil, err
		}
		// The decoded page stays in memory until the last page has been read.
		if memory += inputweight.SizeOf(page); memory > maxListed {
			items, more = append(items, more...), nil
			memory = reduceHeaviest(items)
		}
		if _, err := on.acquireBytes(ctx, int(memory)); err != nil {
			return nil, err
		}
		switch {
		case memory > maxListed:
			return nil, fmt.Errorf("the server's list uses more than %d MiB", maxListed>>20)
		case seen[o.Continue]:
			return nil, errors.New("the server's list has a loop: a continue token occurs twice")
		case o.Continue != "":
			seen[o.Continue] = true
		}
		items = append(items, more...)
		if n == 0 {
			first = page
			o.ResourceVersion, o.ResourceVersionMatch = "", "" // the continue token contains the version
		}
		if o.Continue == "" {
			m, _ := meta.ListAccessor(first)
			m.SetContinue("")
			m.SetRemainingItemCount(nil)
			return first, meta.SetList(first, items)
		}
	}
	return nil, fmt.Errorf("the server's list has more than %d pages", maxPages)
}
