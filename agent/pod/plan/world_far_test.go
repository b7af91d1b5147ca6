package plan

import (
	"maps"
	"slices"
	"time"
)

// The type farRuntime contains the differences of a runtime behind a CRI socket, such as containerd with its pause
// containers. It reports exits late, or only when it is listed after an action. The stop of a sandbox stops its
// containers. Other programs may remove the node's containers.
type farRuntime struct {
	remote bool
	unseen map[string]end // exited containers that are still observed as running, by ID
}

// An end is the exit code and the time of a container's exit.
type end struct {
	code int32
	at   time.Time
}

// endContainer lets a container exit. A remote runtime may report that later.
func (w *world) endContainer(id string, code int32, arg int) {
	c := find(w.in.Observed, id)
	if !w.remote || arg%4 == 0 || c == nil || !c.MayRun() {
		w.exit(id, code)
		return
	}
	if _, ended := w.unseen[id]; ended {
		return
	}
	w.unseen = maps.Clone(w.unseen)
	if w.unseen == nil {
		w.unseen = map[string]end{}
	}
	w.unseen[id] = end{code, w.in.Now}
}

// relist updates the observed state, as after each action of the worker.
func (w *world) relist() {
	for id, e := range w.unseen {
		if c := find(w.in.Observed, id); c != nil && c.MayRun() {
			w.exit(id, e.code)
			find(w.in.Observed, id).FinishedAt = e.at // the copy that exit made
		}
	}
	w.unseen = nil
}

// takesAlong stops or removes the containers of a sandbox that a remote runtime stops or removes.
func (w *world) takesAlong(sandbox string, removes bool) {
	if !w.remote {
		return
	}
	for _, c := range w.in.Observed.Containers {
		switch {
		case c.SandboxID != sandbox:
		case removes:
			w.vanish(c.ID)
		default:
			w.exit(c.ID, 137)
		}
	}
}

// The method vanish removes a container. Its attempt may be used again if it was the highest one.
func (w *world) vanish(id string) {
	c := find(w.in.Observed, id)
	if c == nil {
		return
	}
	name := c.Name
	w.in.Observed.Containers = slices.DeleteFunc(slices.Clone(w.in.Observed.Containers), func(c Container) bool { return c.ID == id })
	delete(w.attempts, name)
	if last, ok := w.in.Observed.Newest(name); ok {
		w.attempts[name] = int(last.Attempt)
	}
}

// removeByTool removes a container, whether it runs or not, or a sandbox with its containers, as a user of the
// runtime's tool may do.
func (w *world) removeByTool(arg int) {
	if n := len(w.in.Observed.Containers); n > 0 && arg%2 == 0 {
		w.vanish(w.in.Observed.Containers[arg%n].ID)
		return
	}
	if n := len(w.in.Observed.Sandboxes); n > 0 {
		w.removeSandbox(w.in.Observed.Sandboxes[arg%n].ID)
	}
}

// removeSandbox removes a sandbox. If another program removed it, its attempt may be used again.
func (w *world) removeSandbox(id string) {
	w.takesAlong(id, true)
	w.in.Observed.Sandboxes = slices.DeleteFunc(slices.Clone(w.in.Observed.Sandboxes), func(s Sandbox) bool { return s.ID == id })
	if w.remote || len(w.in.Observed.Sandboxes) == 0 { // no longer recorded
		w.sandbox = -1
	}
	for _, s := range w.in.Observed.Sandboxes {
		w.sandbox = max(w.sandbox, int(s.Attempt))
	}
}
