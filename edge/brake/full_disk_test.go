package brake

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/disktest"
)

// TestFullDisk checks that a state that arrives while the disk is full is stored as soon as there is space.
func TestFullDisk(t *testing.T) {
	d := disktest.New(t)
	atPath(t, filepath.Join(d.Dir, "islet.db"), func(s *site) {
		d.Exhaust(func(text string) error { return s.brake.Meta.SetMetaOrRetry(s.Context(), "text", text) })
		held := s.brake.currentState()
		held.Hold = &Hold{Since: time.Now(), Why: "a test", Seen: &held.Known, Pods: []types.UID{"e", "f"}}
		s.brake.setState(s.Context(), held)
		s.brake.setState(s.Context(), held) // the same state again
		d.Free()
		time.Sleep(3 * time.Minute)                   // the store repeats its writes, in the bubble's time
		copied := filepath.Join(d.Copy(), "islet.db") // after a power cut
		s.stop()
		s.Disconnect()
		s.path = copied
		s.start()
		if now := s.brake.currentState(); now.Hold == nil || len(now.Hold.Pods) != 2 {
			s.Errorf("%+v", now)
		}
	})
}
