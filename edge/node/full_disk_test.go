package node

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/disktest"
)

// TestFullDisk checks that a change of the Node that arrives while the disk is full is stored as soon as there is space.
func TestFullDisk(t *testing.T) {
	d := disktest.New(t)
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t)
		w.path = filepath.Join(d.Dir, "islet.db")
		w.start()
		time.Sleep(time.Minute) // the Node is registered, in the bubble's time
		d.Exhaust(func(text string) error { return w.Meta.SetMetaOrRetry(t.Context(), "text", text) })
		n := w.node()
		n.Labels["admin"] = "2"
		w.Put(n)
		time.Sleep(time.Minute) // the next status of the Node, in the bubble's time
		d.Free()
		time.Sleep(3 * time.Minute)                   // the store repeats its writes, in the bubble's time
		copied := filepath.Join(d.Copy(), "islet.db") // after a power cut
		w.end()
		w.Disconnect()
		w.path = copied
		w.start()
		defer w.end()
		if got := w.LastKnown(); got.Labels["admin"] != "2" {
			t.Error("the last Node was not stored:", got.Labels)
		}
	})
}
