package plan

import (
	"maps"
	"slices"
	"time"
)

// far is what is different about a runtime behind a CRI socket, such as containerd with
// its pause containers. It tells of ends late, or when it is asked after an action; a
// sandbox that is stopped takes its containers along; and others may remove what is the
// node's.
type far struct {
	remote bool
	unseen map[string]end // of containers that the view shows as running, by ID
}

// An end is how a container ended, and when.
type end struct {
	code int32
	at   time.Time
}

// endContainer lets a container end by itself: a remote runtime may tell of it later.
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

// relist shows everything as it is, as after each action of the worker.
func (w *world) relist() {
	for id, e := range w.unseen {
		if c := find(w.in.Observed, id); c != nil && c.MayRun() {
			w.exit(id, e.code)
			find(w.in.Observed, id).FinishedAt = e.at // of a copy that exit made
		}
	}
	w.unseen = nil
}

// takesAlong ends the containers of a sandbox that a remote runtime stops, or removes them.
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

// vanish removes a container. Its attempt may be used again if it was the highest.
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

// removeByTool remove something of the pod with a tool of the runtime's: a container, whether it
// runs or not, or a sandbox with all that is in it.
func (w *world) removeByTool(arg int) {
	if n := len(w.in.Observed.Containers); n > 0 && arg%2 == 0 {
		w.vanish(w.in.Observed.Containers[arg%n].ID)
		return
	}
	if n := len(w.in.Observed.Sandboxes); n > 0 {
		w.removeSandbox(w.in.Observed.Sandboxes[arg%n].ID)
	}
}

// removeSandbox removes a sandbox. What others remove may have had a later attempt.
func (w *world) removeSandbox(id string) {
	w.takesAlong(id, true)
	w.in.Observed.Sandboxes = slices.DeleteFunc(slices.Clone(w.in.Observed.Sandboxes), func(s Sandbox) bool { return s.ID == id })
	if w.remote || len(w.in.Observed.Sandboxes) == 0 { // forgotten on purpose
		w.sandbox = -1
	}
	for _, s := range w.in.Observed.Sandboxes {
		w.sandbox = max(w.sandbox, int(s.Attempt))
	}
}
