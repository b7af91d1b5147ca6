package images

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
)

// An untagger is a runtime that can remove a single name of an image.
type untagger interface {
	Untag(ctx context.Context, name string) error
}

// removeImage removes an image. If ?ref= is one of several names of the image, it removes only this name. Running
// containers are not affected. Without ?force, a request for an image or name that a pod needs is rejected, because the pod
// could not restart.
func (im *Images) removeImage(r *http.Request) (any, error) {
	name, ctx := r.URL.Query().Get("ref"), r.Context()
	ref := &crapi.ImageSpec{Image: name}
	st, err := im.Store.ImageStatus(ctx, &crapi.ImageStatusRequest{Image: ref})
	if err != nil {
		return nil, fmt.Errorf("find image %s: %w", name, err)
	}
	if st.Image == nil {
		return nil, response.Refuse(http.StatusNotFound, "image %q not found", name)
	}
	names, can := im.Store.(untagger)
	untag := can && len(st.Image.RepoTags) > 1 && slices.Contains(st.Image.RepoTags, podspec.FullImage(name))
	if !r.URL.Query().Has("force") {
		pod, err := im.imageUser(ctx, st.Image.Id, podspec.FullImage(name), untag)
		if err != nil {
			return nil, err
		}
		if pod != "" {
			return nil, response.Refuse(http.StatusConflict, "image %q is needed by %s%s", name, pod, adviceAbout(st.Image, can))
		}
	}
	gone := &api.Image{ID: st.Image.Id, Tags: st.Image.RepoTags, Digests: st.Image.RepoDigests, Size: st.Image.Size}
	if untag {
		gone.Tags, gone.Size = []string{podspec.FullImage(name)}, 0
		err = names.Untag(ctx, name)
	} else {
		_, err = im.Store.RemoveImage(ctx, &crapi.RemoveImageRequest{Image: ref})
	}
	if err != nil {
		return nil, fmt.Errorf("remove image %s: %w", name, err)
	}
	return gone, nil
}

// adviceAbout returns a text that explains how an image that a pod needs can be removed. Only islet's own runtime can untag images, and it
// pins only images of bundles. A pinned image is not removed, not even with --force.
func adviceAbout(image *crapi.Image, canUntag bool) string {
	if canUntag && image.Pinned {
		return " and pinned: it belongs to the bundle that is in use or on trial, or to the previous one (islet bundle status). " +
			"--force does not remove it: apply bundles without this image first"
	}
	return ": delete that first, or remove the image with --force"
}

// PodNeeding returns "pod NAMESPACE/NAME" of a pod that uses the image, or "" if no pod uses it. Clients of the CRI must
// not remove an image that a pod uses, but the CRI does not provide the pods.
func (im *Images) PodNeeding(ctx context.Context, ref string) (string, error) {
	st, err := im.Store.ImageStatus(ctx, &crapi.ImageStatusRequest{Image: &crapi.ImageSpec{Image: ref}})
	if err != nil || st.Image == nil {
		return "", err
	}
	return im.podNeeding(ctx, st.Image.Id, podspec.FullImage(ref), false)
}

func (im *Images) podNeeding(ctx context.Context, id, name string, onlyName bool) (string, error) {
	for _, p := range im.Pods.List() {
		for _, ref := range podspec.Images(&p.Spec) {
			needs := podspec.FullImage(ref) == name
			if !needs && !onlyName {
				st, err := im.Store.ImageStatus(ctx, &crapi.ImageStatusRequest{Image: &crapi.ImageSpec{Image: ref}})
				if err != nil {
					return "", fmt.Errorf("find image %s of pod %s/%s: %w", ref, p.Namespace, p.Name, err)
				}
				needs = st.GetImage().GetId() == id
			}
			if needs {
				return fmt.Sprintf("pod %s/%s", p.Namespace, p.Name), nil
			}
		}
	}
	return "", nil
}

// imageUser describes a user of an image, such as a pod. If onlyName is true, it considers only pods that use
// the image by the given name. It returns an empty text if there is no user.
func (im *Images) imageUser(ctx context.Context, id, name string, onlyName bool) (string, error) {
	pod, err := im.podNeeding(ctx, id, name, onlyName)
	if err != nil || pod != "" || onlyName {
		return pod, err
	}
	return im.Garbage.ImageUser(ctx, id)
}
