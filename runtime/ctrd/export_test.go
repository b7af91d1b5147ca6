package ctrd

import "time"

// SetExecGrace replaces killGrace for real commands. It must be called before the first command.
func SetExecGrace(r *Runtime, d time.Duration) { r.execGrace = d }

// RetainedConfigs returns the bytes of encoded configurations that a runtime keeps in memory, in addition to the decoded configurations.
func RetainedConfigs(r *Runtime) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		n += len(s.rec.Config) + len(s.rec.Resized)
	}
	for _, c := range r.containers {
		n += len(c.rec.Config)
	}
	return n
}
