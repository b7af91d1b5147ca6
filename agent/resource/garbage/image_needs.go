package garbage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// images lists the images. It does not set the fields First and Used of the images.
func (g *Garbage) images(ctx context.Context) ([]Image, error) {
	list, err := g.c.Images.ListImages(ctx, &api.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	out := make([]Image, 0, len(list.Images))
	for _, i := range list.Images {
		out = append(out, Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned})
	}
	return out, nil
}

// podNeeds returns the images that stored pods refer to, or have used. It makes no call to the runtime.
func (g *Garbage) podNeeds() []Need {
	pods := g.c.Pods()
	out := make([]Need, 0, len(pods))
	for _, p := range pods {
		n := Need{Name: fmt.Sprintf("pod %s/%s", p.Namespace, p.Name), Ended: isOver(p), Refs: podspec.Images(&p.Spec)}
		for st := range podspec.Statuses(&p.Status) {
			n.Refs = append(n.Refs, st.ImageID)
		}
		out = append(out, n)
	}
	return out
}

// isOver reports whether a pod will never run again. A pod of this node's own sources may run again after a restart,
// or when resources are available again.
func isOver(p *v1.Pod) bool {
	source := p.Annotations[keys.ConfigSource]
	return (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed) && (source == "" || source == keys.SourceAPI)
}

// inspect returns the images, and the pods and containers that need them, for Decide. If any call fails, it returns an
// error, so that no needed image is removed. It reads the pods after the images and containers, so that pods that were
// added meanwhile are included.
func (g *Garbage) inspect(ctx context.Context) ([]Image, []Need, error) {
	images, err := g.images(ctx)
	if err != nil {
		return nil, nil, err
	}
	needs, foreign, err := g.containerNeeds(ctx)
	if err != nil {
		return nil, nil, err
	}
	pause, err := g.sandboxImage(ctx)
	if err != nil {
		return nil, nil, err
	}
	if pause != "" {
		needs = append(needs, Need{Refs: []string{pause}, Name: "every pod, as its sandbox"})
	}
	for _, id := range foreign {
		more, err := g.mountedNeeds(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		needs = append(needs, more...)
	}
	needs = append(g.podNeeds(), needs...) // the reason for a pod is more specific than the reason for its container
	found := map[string]string{}
	for i := range needs {
		for _, ref := range needs[i].Refs {
			id, known := found[ref]
			if !known && ref != "" {
				st, err := g.c.Images.ImageStatus(ctx, &api.ImageStatusRequest{Image: &api.ImageSpec{Image: ref}})
				if err != nil {
					return nil, nil, fmt.Errorf("find image %s of %s: %w", ref, needs[i].Name, err)
				}
				id = st.GetImage().GetId()
				found[ref] = id
			}
			if id != "" {
				needs[i].Refs = append(needs[i].Refs, id)
			}
		}
	}
	return images, needs, nil
}

// containerNeeds returns the images of all containers, also of those that have ended. It also returns the IDs of the
// containers that belong to no stored pod.
func (g *Garbage) containerNeeds(ctx context.Context) (needs []Need, foreign []string, err error) {
	list, err := g.c.Runtime.ListContainers(ctx, &api.ListContainersRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	stored := map[string]bool{}
	for _, p := range g.c.Pods() {
		stored[string(p.UID)] = true
	}
	for _, c := range list.Containers {
		by := "container " + c.GetMetadata().GetName()
		if name := c.Labels[keys.PodName]; name != "" {
			by += " of pod " + c.Labels[keys.PodNamespace] + "/" + name
		}
		needs = append(needs, Need{Refs: []string{c.ImageId, c.ImageRef, c.GetImage().GetImage()}, Name: by})
		if !stored[c.Labels[keys.PodUID]] {
			foreign = append(foreign, c.Id)
		}
	}
	return needs, foreign, nil
}

// mountedNeeds returns the images that a container of an unknown pod mounts.
func (g *Garbage) mountedNeeds(ctx context.Context, id string) (needs []Need, err error) {
	st, err := g.c.Runtime.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect container %s: %w", id, err)
	}
	for _, m := range st.GetStatus().GetMounts() {
		if ref := m.GetImage().GetImage(); ref != "" {
			needs = append(needs, Need{Refs: []string{ref}, Name: "container " + st.GetStatus().GetMetadata().GetName()})
		}
	}
	return needs, nil
}

// sandboxImage returns the sandbox image of a remote runtime. It returns "" if there is none or it is
// unknown. Newer runtimes pin this image.
func (g *Garbage) sandboxImage(ctx context.Context) (string, error) {
	if !g.c.Remote {
		return "", nil
	}
	st, err := g.c.Runtime.Status(ctx, &api.StatusRequest{Verbose: true})
	if err != nil {
		return "", fmt.Errorf("read the sandbox image: %w", err)
	}
	var config struct {
		SandboxImage string `json:"sandboxImage"` // containerd 1
	}
	if json.Unmarshal([]byte(st.Info["config"]), &config) != nil {
		return "", nil // other runtimes keep the image themselves
	}
	return config.SandboxImage, nil
}
