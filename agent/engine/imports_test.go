package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
)

// A replaced is a storage that was damaged and replaced.
type replaced struct {
	message   string
	forgotten bool
}

func (r *replaced) Damage() string { return r.message }

func (r *replaced) ForgetDamage() error {
	r.forgotten = true
	return nil
}

// TestReportDamage checks the records of imports after all images were lost. Each archive is imported again, also after a restart, and the
// images are known that archives have had. An event reports the loss. It is recorded again if the agent ends before the event is stored.
func TestReportDamage(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "islet.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const image = "image:docker.io/library/one:1"
	keys := []string{"file:1", "sha256:1", image}
	told := 0
	c := Config{Store: s, Log: slog.New(slog.DiscardHandler), RecordEvent: func(warning bool, reason, message string) {
		told++
		if !warning {
			t.Error("the event is not a warning")
		}
		eventtest.RecordEvent(v1.EventTypeWarning, reason, message)
	}}
	report := func(r *replaced, events int, archives bool) (forget func(context.Context, func())) {
		t.Helper()
		forget = c.reportDamage(ctx, r)
		if told != events {
			t.Errorf("%d events, want %d", told, events)
		}
		for _, key := range keys {
			if got, err := s.WasImported(ctx, key); got != (archives || key == image) || err != nil {
				t.Errorf("%s: %v, %v", key, got, err)
			}
		}
		return forget
	}
	for _, key := range keys {
		if err := s.AddImport(ctx, key, "one.tar"); err != nil {
			t.Fatal(err)
		}
	}
	report(&replaced{}, 0, true)
	r := &replaced{message: "/state/containerd/meta.db could not be used: page 2 has the number 0. The records of all images were lost, and the " +
		"damaged files are kept with the suffix .corrupt-20260101T000000Z. Images are imported from their archives and pulled again"}
	forget := report(r, 1, false)
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancel(context.Background())
		end()
		forget(ended, nil)
		if r.forgotten {
			t.Error("the damage was forgotten when the agent ended")
		}
	})
	if err := s.AddImport(ctx, "file:1", "one.tar"); err != nil {
		t.Fatal(err)
	}
	forget = report(r, 2, false)
	synctest.Test(t, func(t *testing.T) {
		forget(context.Background(), nil)
		if !r.forgotten {
			t.Error("the damage was not forgotten")
		}
	})
}

// TestReportDamageOnFullDisk checks records of imports that cannot be deleted at first. This is tried again while the agent runs, the
// archives are then read again, and the damage is forgotten only after that.
func TestReportDamageOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, err := store.Open(ctx, path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.AddImport(ctx, "file:1", "one.tar"); err != nil {
			t.Fatal(err)
		}
		c := Config{Store: s, Log: slog.New(slog.DiscardHandler), RecordEvent: func(bool, string, string) {}}
		full, end := context.WithCancel(ctx)
		end() // the records cannot be deleted
		r := &replaced{message: "damaged"}
		forget := c.reportDamage(full, r)
		rereads, began := 0, time.Now()
		forget(ctx, func() {
			rereads++
			if imported, err := s.WasImported(ctx, "file:1"); imported || r.forgotten || err != nil {
				t.Errorf("the record is left: %t, forgotten: %t, %v", imported, r.forgotten, err)
			}
		})
		if took := time.Since(began); !r.forgotten || rereads != 1 || took < forgetInterval+damageKept {
			t.Errorf("after %s: forgotten: %t, %d rereads", took, r.forgotten, rereads)
		}
	})
}
