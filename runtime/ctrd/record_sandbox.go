package ctrd

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// completeRecord returns the record of a sandbox with its configuration and its resized resources, or nil if they cannot be encoded.
func (r *Runtime) completeRecord(s *sandbox) *sandboxRecord {
	r.mu.Lock()
	rec, resized := s.rec, s.resized
	r.mu.Unlock()
	var err error
	if rec.Config, err = encode(s.config); err == nil && resized != nil {
		rec.Resized, err = encode(resized)
	}
	if err != nil {
		return nil
	}
	return &rec
}

// restoreSandbox restores the sandbox of an ended container if a power cut has destroyed the sandbox's record. Otherwise the container
// would be removed, and a pod that has completed would run again. The power cut has also ended the sandbox, so it is not ready.
func (r *Runtime) restoreSandbox(c *container) error {
	rec := c.rec.PodSandbox
	c.rec.PodSandbox = nil
	if rec == nil || rec.ID != c.rec.Sandbox || r.sandboxes[rec.ID] != nil || r.occupied[rec.ID] {
		return nil
	}
	if rec.Format > recordFormat {
		return fmt.Errorf("%s: %w", r.recordPath(c.rec.ID), errNewer)
	}
	s := &sandbox{rec: *rec, config: &api.PodSandboxConfig{}}
	if err := proto.Unmarshal(rec.Config, s.config); err != nil {
		return nil // the sandbox stays unknown
	}
	if err := createRecord(r.sandboxPath(rec.ID), rec); err != nil {
		r.log.Warn("the record of a sandbox could not be restored: the next start tries again", "sandbox", rec.ID, "error", err)
	}
	return r.addRecorded(s)
}
