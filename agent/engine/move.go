package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/sync/errgroup"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/remote"
)

// metaKey is where the store has which runtime this node's pods run in.
const metaKey = "containerRuntime"

// A record says which runtime this node's pods run in.
type record struct {
	Endpoint string `json:"endpoint"`         // empty: the one in this process
	Boot     string `json:"boot"`             // the machine's when it was last in use
	Driver   string `json:"driver,omitempty"` // of cgroups, which it said last
	Left     string `json:"left,omitempty"`   // what the one of before keeps
	exists    bool
}

// loadRecord reads the record. A node of before there were records has used the runtime
// in its process, if any.
func loadRecord(ctx context.Context, a Config) (r record, err error) {
	text, known, err := a.Store.Meta(ctx, metaKey)
	if err != nil {
		return r, err
	}
	if !known {
		made, err := os.ReadDir(filepath.Join(a.Dirs.State, recordsDir))
		r.exists = err == nil && len(made) > 0
		r.Boot = bootid.Read()
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("which container runtime the node has used: %w", err)
	}
	r.exists = true
	return r, nil
}

// save stores the record.
func (r *record) save(ctx context.Context, a Config) error {
	r.Boot = bootid.Read()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return a.Store.SetMeta(ctx, metaKey, string(text))
}

// answerTimeout is how long a runtime gets to answer at a move.
const answerTimeout = 10 * time.Second

// move decides in which runtime the node's pods run from now on. Pods never run in two:
// before the node turns to another runtime, that must answer, and what the old one runs
// of this node is ended, with the pods' grace. stays is why the node keeps the old one.
//
//	new runtime answers?  no -> stay
//	old runtime answers?  no -> booted since: nothing runs there; else: refuse to start
//	end the node's pods there --> say what is left --> new runtime
func move(ctx context.Context, a Config, used record) (now record, stays error, err error) {
	unchanged := remote.Socket(used.Endpoint) == remote.Socket(a.RuntimeEndpoint)
	if !used.exists || unchanged {
		return record{Endpoint: a.RuntimeEndpoint, Driver: used.Driver, Left: used.Left}, nil, nil
	}
	if a.RuntimeEndpoint != "" {
		next, err := openRemote(ctx, a, a.RuntimeEndpoint, nil)
		if err != nil {
			return now, nil, err
		}
		defer next.Close()
		if !waitAnswer(ctx, next) {
			stays = fmt.Errorf("the configuration names the container runtime at %s, which does not answer: this node's pods stay in %s; start the other and then islet again, or take containerRuntimeEndpoint out", a.RuntimeEndpoint, title(used.Endpoint))
			a.Log.Error(stays.Error())
			return used, stays, nil
		}
	}
	left, err := endOldPods(ctx, a, used)
	if err != nil {
		return now, nil, err
	}
	a.reportMove(used.Endpoint, left)
	return record{Endpoint: a.RuntimeEndpoint, Left: left}, nil, nil
}

// reportMove reports that the pods run in another runtime, and what the one of before keeps.
func (a Config) reportMove(before, left string) {
	a.Log.Warn("the node's pods run in another container runtime from now on", "before", title(before), "now", title(a.RuntimeEndpoint), "left", left)
	a.Tell(false, "ContainerRuntimeChanged", fmt.Sprintf("Pods run in %s from now on. %s", title(a.RuntimeEndpoint), left))
}

// title names a runtime to people.
func title(endpoint string) string {
	if endpoint == "" {
		return "islet's own runtime"
	}
	return "the runtime at " + endpoint
}

// waitAnswer waits a little for a runtime.
func waitAnswer(ctx context.Context, c *Containers) bool {
	ctx, stop := context.WithTimeout(ctx, answerTimeout)
	defer stop()
	d, isRemote := c.backend.(*remoteBackend)
	for isRemote && !d.Ask(ctx) && ctx.Err() == nil {
		d.AwaitChange(ctx)
	}
	return ctx.Err() == nil
}

// endOldPods ends what the old runtime runs of this node, and says what stays there.
func endOldPods(ctx context.Context, a Config, used record) (left string, err error) {
	old, err := open(ctx, a, used.Endpoint)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	if !waitAnswer(ctx, old) {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if now := bootid.Read(); now != "" && used.Boot != now { // what ran went with the machine's power
			return fmt.Sprintf("The runtime at %s does not answer; its images, and what is left of this node's pods, stay there.", used.Endpoint), nil
		}
		return "", fmt.Errorf("this node's pods may still run in the runtime at %s, which does not answer: start it, so that they can be ended before they start in %s; or boot the machine anew", used.Endpoint, title(a.RuntimeEndpoint))
	}
	if err := a.Leaving(ctx, old.Runtime); err != nil {
		return "", fmt.Errorf("keep what is known of the pods in %s: %w", title(used.Endpoint), err)
	}
	others, err := endPods(ctx, a, old)
	if err != nil {
		return "", fmt.Errorf("end the node's pods in %s: %w", title(used.Endpoint), err)
	}
	if err := old.Network.Clean(ctx); err != nil {
		a.Log.Warn("not everything of the built-in network could be removed", "error", err)
	}
	return describeLeftovers(ctx, a, old, others), nil
}

// defaultGrace is that of a pod that says none.
const defaultGrace = 30 * time.Second

// endPods stops the node's pods, all at once, and removes them. It returns how many pods
// are somebody else's.
func endPods(ctx context.Context, a Config, c *Containers) (others int, err error) {
	list, err := c.Runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return 0, err
	}
	own := c.Own(list.Items)
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range own {
		a.Log.Info("a pod is ended, and starts in the other container runtime", "pod", s.Metadata.GetNamespace()+"/"+s.Metadata.GetName(), "uid", s.Labels[keys.PodUID])
		g.Go(func() error { return endPod(ctx, c.Runtime, s) })
	}
	return len(list.Items) - len(own), g.Wait()
}

// endPod stops a pod's containers with its grace and removes all of it. Its preStop hooks
// do not run.
func endPod(ctx context.Context, rt cri.Runtime, s *api.PodSandbox) error {
	list, err := rt.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{PodSandboxId: s.Id,
		State: &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return err
	}
	g, stopping := errgroup.WithContext(ctx)
	for _, c := range list.Containers {
		g.Go(func() error {
			_, err := rt.StopContainer(stopping, &api.StopContainerRequest{ContainerId: c.Id, Timeout: int64(graceOf(s) / time.Second)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("pod %s/%s: %w", s.Metadata.GetNamespace(), s.Metadata.GetName(), err)
	}
	for began := time.Now(); ; {
		_, err = rt.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: s.Id})
		if err == nil {
			_, err = rt.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: s.Id})
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Since(began) > removeTimeout {
			return fmt.Errorf("pod %s/%s: %w", s.Metadata.GetNamespace(), s.Metadata.GetName(), err)
		}
		select {
		case <-time.After(removeRetry):
		case <-ctx.Done():
		}
	}
}

// A runtime may refuse to remove what ended a moment ago: containerd takes a container for
// running until it has heard of its end.
const (
	removeTimeout  = 20 * time.Second // for which it is asked again
	removeRetry = 250 * time.Millisecond
)

// graceOf is the grace of the pod that a sandbox was made for.
func graceOf(s *api.PodSandbox) time.Duration {
	var pod v1.Pod
	if json.Unmarshal([]byte(s.Annotations[keys.Manifest]), &pod) != nil || pod.Spec.TerminationGracePeriodSeconds == nil {
		return defaultGrace
	}
	return time.Duration(max(*pod.Spec.TerminationGracePeriodSeconds, 1)) * time.Second
}

// describeLeftovers says what stays in a runtime that was left, and how it is removed.
func describeLeftovers(ctx context.Context, a Config, c *Containers, others int) string {
	images := 0
	if list, err := c.Images.ListImages(ctx, &api.ListImagesRequest{}); err == nil {
		images = len(list.Images)
	}
	if c.Endpoint == "" {
		return fmt.Sprintf("Islet's own runtime keeps %d images; to free their space: rm -r %s %s", images, filepath.Join(a.Dirs.State, storageDir), filepath.Join(a.Dirs.State, recordsDir))
	}
	text := fmt.Sprintf("The runtime at %s keeps %d images; to free their space: crictl --runtime-endpoint %[1]s rmi --prune", c.Endpoint, images)
	if others > 0 {
		text += fmt.Sprintf(". It has %d pods that are not this node's, and stay as they are", others)
	}
	return text
}

// driver is the cgroup driver that a runtime behind a socket uses: what it says; what it
// said last, while it does not answer; else what the configuration says, as it must for
// runtimes that say nothing (KEP-4033).
func (r *record) driver(a Config, rt *remote.Runtime) string {
	ctx, stop := context.WithTimeout(context.Background(), answerTimeout)
	defer stop()
	said, err := rt.CgroupDriver(ctx)
	switch {
	case err == nil:
		r.Driver = said
	case rt.Answers():
		a.Log.Warn("the container runtime does not say its cgroup driver", "error", err)
	}
	if r.Driver == "" {
		return a.Kubelet.CgroupDriver
	}
	if r.Driver != a.Kubelet.CgroupDriver {
		a.Log.Info("cgroups are made by the container runtime's driver, not by cgroupDriver", "driver", r.Driver, "cgroupDriver", a.Kubelet.CgroupDriver)
	}
	return r.Driver
}
