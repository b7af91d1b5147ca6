package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/desired"
)

// annotationPod holds the manifest of a pod, so that what runs can fill the store
// again if that is lost: of what a person applied there is no other copy, and a
// manifest may be damaged or out of reach just then.
const annotationPod = "islet.dev/pod"

// annotationSource is a kubelet's: where a pod comes from.
const annotationSource = "kubernetes.io/config.source"

// keepManifest is the hook that writes annotationPod.
type keepManifest struct{}

func (keepManifest) Name() string { return "manifest" }

// Sandbox adds the pod's manifest.
func (keepManifest) Sandbox(_ context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error {
	kept := *pod
	kept.Status = v1.PodStatus{}
	b, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotationPod] = string(b)
	return nil
}

// rebuild fills a store that was lost with what runs: the pods, each as its
// source's, and the addresses that are in use.
func (a *agent) rebuild(ctx context.Context) error {
	list, err := a.rt.runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	made, err := a.rt.runtime.ListContainers(ctx, &api.ListContainersRequest{})
	if err != nil {
		return err
	}
	var errs []error
	var pods []desired.Recovered
	known := map[string]bool{}
	for _, s := range list.Items {
		if s.State == api.PodSandboxState_SANDBOX_READY {
			errs = append(errs, a.keepAddresses(ctx, s.Id))
		}
		text := s.Annotations[annotationPod]
		if uid := s.Metadata.GetUid(); text == "" || known[uid] {
			continue
		}
		known[s.Metadata.GetUid()] = true
		pod := &v1.Pod{}
		if err := json.Unmarshal([]byte(text), pod); err != nil {
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", s.Metadata.GetNamespace(), s.Metadata.GetName(), err))
			continue
		}
		asMade(pod, made.Containers)
		pods = append(pods, desired.Recovered{Source: pod.Annotations[annotationSource], Pod: pod})
	}
	return errors.Join(append(errs, a.desired.Adopt(ctx, pods))...)
}

// asMade gives the containers of a pod the images that they were last made with: the
// API may have changed them since the pod's sandbox was made.
func asMade(pod *v1.Pod, made []*api.Container) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			var last uint32
			for _, c := range made {
				of, image := types.UID(c.Labels["io.kubernetes.pod.uid"]), c.Image.GetUserSpecifiedImage()
				if m := c.Metadata; of == pod.UID && image != "" && m.GetName() == list[i].Name && m.GetAttempt() >= last {
					last, list[i].Image = m.GetAttempt(), image
				}
			}
		}
	}
}

func (a *agent) keepAddresses(ctx context.Context, sandbox string) error {
	st, err := a.rt.runtime.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return err
	}
	network := st.GetStatus().GetNetwork()
	ips := []string{network.GetIp()}
	for _, ip := range network.GetAdditionalIps() {
		ips = append(ips, ip.Ip)
	}
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			continue // a pod on the host's network has none of its own
		}
		if err := a.store.AddLease(ctx, addr, sandbox); err != nil {
			return fmt.Errorf("keep the address %s of sandbox %s: %w", addr, sandbox, err)
		}
	}
	return nil
}
