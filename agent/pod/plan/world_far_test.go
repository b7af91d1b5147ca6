package plan

import (
	"maps"
	"slices"
	"time"
)

// A farRuntime simulates the differences of a runtime behind a CRI socket, such as containerd with its pause containers. Such a runtime
// reports exits late, or only when it is listed after an action. The stop of a sandbox stops the sandbox's containers. Other programs may
// remove containers.
type farRuntime struct {
	remote bool
	unseen map[string]end // exited containers that are still observed as running; the key is the container's ID
}

// An end consists of the exit code of a container and the time of its exit.
type end struct {
	code int32
	at   time.Time
}

// endContainer makes a container exit. A remote runtime may report the exit later.
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

// relist updates the observed state. The worker does the same after each action.
func (w *world) relist() {
	for id, e := range w.unseen {
		if c := find(w.in.Observed, id); c != nil && c.MayRun() {
			w.exit(id, e.code)
			find(w.in.Observed, id).FinishedAt = e.at // exit has made a copy
			w.over = false                            // it may have ended before the containers that have completed the pod
		}
	}
	w.unseen = nil
}

// takesAlong stops or removes the containers of a sandbox, as a remote runtime does with the sandbox.
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

// This helper removes a container. If its attempt was the highest one, the same attempt may be used again.
func (w *world) vanish(id string) {
	c := find(w.in.Observed, id)
	if c == nil {
		return
	}
	name := c.Name
	w.over = false
	w.in.Observed.Containers = slices.DeleteFunc(slices.Clone(w.in.Observed.Containers), func(c Container) bool { return c.ID == id })
	delete(w.attempts, name)
	if last, ok := w.in.Observed.Newest(name); ok {
		w.attempts[name] = int(last.Attempt)
	}
}

// removeByTool removes a container, which may be running, or a sandbox with its containers. A user of the runtime's command line tool can
// do the same.
func (w *world) removeByTool(arg int) {
	if n := len(w.in.Observed.Containers); n > 0 && arg%2 == 0 {
		w.vanish(w.in.Observed.Containers[arg%n].ID)
		return
	}
	if n := len(w.in.Observed.Sandboxes); n > 0 {
		w.removeSandbox(w.in.Observed.Sandboxes[arg%n].ID)
	}
}

// removeSandbox removes a sandbox. If another program has removed a sandbox, its attempt number may be used again.
func (w *world) removeSandbox(id string) {
	w.takesAlong(id, true)
	w.in.Observed.Sandboxes = slices.DeleteFunc(slices.Clone(w.in.Observed.Sandboxes), func(s Sandbox) bool { return s.ID == id })
	if w.remote || len(w.in.Observed.Sandboxes) == 0 { // the sandbox is no longer recorded
		w.sandbox = -1
	}
	for _, s := range w.in.Observed.Sandboxes {
		w.sandbox = max(w.sandbox, int(s.Attempt))
	}
}
