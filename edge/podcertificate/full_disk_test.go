package podcertificate

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/disktest"
)

// TestFullDisk checks that a certificate that arrives while the disk is full is stored as soon as there is space.
func TestFullDisk(t *testing.T) {
	d := disktest.New(t)
	inWorldAt(t, filepath.Join(d.Dir, "islet.db"), func(w *world) {
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		w.prepare(p)
		d.Exhaust(func(text string) error { return w.store.SetMeta(w.Context(), "text", text) })
		w.issue(24 * time.Hour)
		has := w.has(p)
		d.Free()
		// The store repeats its writes, in the bubble's time.
		time.Sleep(3 * time.Minute)
		db, err := store.Open(w.Context(), filepath.Join(d.Copy(), "islet.db"), slog.New(slog.DiscardHandler)) // after a power cut
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		w.certs = New(Config{Client: w.server.Client(w), Store: db, Log: slog.New(slog.DiscardHandler)})
		if err := w.certs.Load(w.Context(), w.pods); err != nil {
			t.Fatal(err)
		}
		if got := w.has(p); got != has {
			t.Error("another certificate:", got, has)
		}
	})
}
