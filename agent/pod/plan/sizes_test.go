package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/podspec"
)

// A resizes is the state of resources in the world. The allocated resources are the memory limits and requests in the spec. A container
// whose name ends with 1 is resized only by a restart. The runtime reports the limits, and the requests at the creation.
type resizes struct {
	asks     map[string]memory // what is requested but not allocated; the key is the container
	requests map[string]int64  // the MemoryRequest that a container has; the key is its ID
	prepared *Resources        // size for which this agent has prepared the pod's cgroup; nil: not prepared
	level    Resources         // size of the pod's cgroup
	leveled  *Resources        // size of the pod's cgroup that the worker knows
	unsure   bool
	sized    map[string]Resources
	begun    map[string]startedAction // the key is the action's subject
}

// startedAction contains the desired sizes at the beginning of an action, and the IDs of the containers that a Resize changes.
type startedAction struct {
	sizes map[string]Size
	level Resources
	needs map[string]bool
}

type memory struct{ limit, request int64 }

const (
	firstMemory  = 100
	firstRequest = 50
)

func memoryOf(ctr *v1.Container) memory {
	m := memory{firstMemory, firstRequest}
	if q, ok := ctr.Resources.Limits[v1.ResourceMemory]; ok {
		m = memory{q.Value(), ctr.Resources.Requests.Memory().Value()}
	}
	return m
}

func sizesOf(pod *v1.Pod) (map[string]Size, Resources) {
	sizes, level, requests := map[string]Size{}, Resources{}, int64(0)
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Ephemeral {
			continue
		}
		m := memoryOf(ctr)
		s := Size{Resources: Resources{Memory: m.limit, MemoryRequest: MemoryRequest(m.request, false)}}
		if kind == podspec.Main { // the size of a container can change without that of the pod
			level.Memory += m.limit
			requests += m.request
		}
		if kind != podspec.Init && strings.HasSuffix(ctr.Name, "1") {
			s.RestartResources = fmt.Sprint(m)
		}
		sizes[ctr.Name] = s
	}
	level.MemoryRequest = MemoryRequest(requests, false)
	return sizes, level
}

// This helper requests other resources for one container.
func (w *world) ask(arg int) {
	if w.in.Want == nil {
		return
	}
	w.asks = maps.Clone(w.asks)
	if w.asks == nil {
		w.asks = map[string]memory{}
	}
	list := slices.Concat(w.in.Want.Spec.InitContainers, w.in.Want.Spec.Containers)
	ctr := list[arg%len(list)]
	w.asks[ctr.Name] = memory{firstMemory + int64(arg%5-2)*20, firstRequest + int64(arg/5%3)*5}
	w.in.Undecided = true
}

// grant allocates the requested resources, unless the node rejects the request.
func (w *world) grant() {
	w.in.Undecided = false
	if w.refuse || w.in.Want == nil {
		return
	}
	pod := w.in.Want.DeepCopy()
	for _, ctr := range podspec.Containers(&pod.Spec) {
		if m, ok := w.asks[ctr.Name]; ok {
			ctr.Resources.Limits = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(m.limit, resource.DecimalSI)}
			ctr.Resources.Requests = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(m.request, resource.DecimalSI)}
		}
	}
	w.in.Want, w.asks = pod, nil
}

// showSizes copies the sizes that the worker knows to the planner's input.
func (w *world) showSizes(sb Sandbox) {
	w.in.Sizes, w.in.PodLevel = sizesOf(w.in.Want)
	if sb.Ready && w.leveled == nil {
		if sb.Hash == w.in.Spec {
			w.leveled = new(w.in.PodLevel)
		} else {
			w.unsure = true
		}
	}
	w.in.Leveled, w.in.Unsure, w.in.Sized = w.leveled, w.unsure, maps.Clone(w.sized)
	if f := w.in.Failed[Key{"", Resize}]; f.Hash != w.in.Spec {
		delete(w.in.Failed, Key{"", Resize})
	}
}

// forgetSizes deletes the sizes that a restarted agent does not know.
func (w *world) forgetSizes() {
	w.leveled, w.unsure, w.sized, w.prepared = nil, false, nil, nil
	w.in.Undecided = len(w.asks) > 0
}

func (w *world) begin(a Action) {
	if w.in.Want == nil {
		return
	}
	if w.begun == nil {
		w.begun = map[string]startedAction{}
	}
	b := startedAction{w.in.Sizes, w.in.PodLevel, map[string]bool{}}
	for _, c := range NeedResize(w.in) {
		b.needs[c.ID] = true
	}
	w.begun[a.Container] = b
}

// created records the request of a new container.
func (w *world) created(id string, request int64) {
	w.requests = maps.Clone(w.requests)
	if w.requests == nil {
		w.requests = map[string]int64{}
	}
	w.requests[id] = request
}

// has returns the resources of a container.
func (w *world) has(c Container) Resources {
	r := *c.Resources
	r.MemoryRequest = w.requests[c.ID]
	return r
}

// prepare creates or adopts the pod's cgroup.
func (w *world) prepare(a Action) {
	level := w.begun[a.Container].level
	if w.prepared != nil && *w.prepared == level {
		return
	}
	w.prepared = new(level)
	if w.anyRunning(func(Container) bool { return true }) {
		level.Memory = max(level.Memory, w.level.Memory)
	}
	w.level = level
}

// resize sets the resources of the running containers that need it. If whole is false, it stops with an error after the first container.
func (w *world) resize(a Action, whole bool) {
	b := w.begun[a.Container]
	sb, _ := w.in.Observed.Sandbox()
	w.in.Observed.Containers = slices.Clone(w.in.Observed.Containers)
	for i, c := range w.in.Observed.Containers {
		last, _ := w.in.Observed.Newest(c.Name)
		if size, ok := b.sizes[c.Name]; ok && b.needs[c.ID] && c.State == Running && c.ID == last.ID && c.SandboxID == sb.ID &&
			(c.RestartResources == "" || c.RestartResources == size.RestartResources) {
			w.created(c.ID, size.MemoryRequest)
			size.MemoryRequest = c.Resources.MemoryRequest // the runtime reports the request at the creation
			w.in.Observed.Containers[i].Resources = &size.Resources
			if !whole {
				return
			}
		}
	}
	if whole {
		w.level = b.level
	}
}

// This helper records the result of a Resize action in the worker's memory.
func (w *world) resized(a Action, ok bool) {
	if a.Op != Resize {
		return
	}
	w.sized = maps.Clone(w.sized)
	if w.sized == nil || !ok {
		w.sized = map[string]Resources{}
	}
	w.unsure = !ok
	if ok {
		for _, c := range w.in.Observed.Containers {
			if c.State == Running && c.Resources != nil && w.begun[""].needs[c.ID] {
				w.sized[c.ID] = w.has(c)
			}
		}
		w.leveled = new(w.begun[""].level)
		w.unsure = *w.leveled != w.level
	}
}

func (w *world) checkResize(a Action, newest Sandbox, ending bool) {
	w.require(!ending && w.in.Admitted && newest.Ready && newest.ID != w.in.Stale, 64, "resizes what does not run")
	w.require(a.Hash == w.in.Spec, 64, "resizes to a spec that is not wanted")
	needs := w.in.Unsure || *w.in.Leveled != w.in.PodLevel
	for _, c := range w.in.Observed.Containers {
		last, _ := w.in.Observed.Newest(c.Name)
		if c.State != Running || c.ID != last.ID || c.SandboxID != newest.ID || c.Name[0] == 'e' {
			continue
		}
		size := w.in.Sizes[c.Name]
		w.require(size.RestartResources == "" || c.RestartResources == "" || c.RestartResources == size.RestartResources, 66,
			"resizes others while %s is to restart for it", c.Name)
		_, known := w.in.Sized[c.ID] // otherwise a restarted agent knows only the request at the creation
		needs = needs || w.has(c) != size.Resources || !known && c.Resources.MemoryRequest != size.MemoryRequest
	}
	w.require(needs, 64, "resizes for nothing")
}

// This helper checks that the pod and all its containers have their allocated resources.
func (w *world) settledSizes(over bool) {
	in := w.in
	sb, _ := in.Observed.Sandbox()
	if over || in.Want == nil || in.Deleting || !sb.Ready {
		return
	}
	w.require(!in.Undecided, 65, "nobody decides about resources")
	w.require(w.level == in.PodLevel, 65, "the pod is held to %+v, not to %+v", w.level, in.PodLevel)
	for _, c := range in.Observed.Containers {
		if size, ok := in.Sizes[c.Name]; ok && c.State == Running {
			w.require(w.has(c) == size.Resources && c.RestartResources == size.RestartResources, 65, "%s has %+v, not %+v", c.Name,
				w.has(c), size)
		}
	}
}
