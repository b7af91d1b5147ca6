package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
)

// TestReportDamage checks the records of imports after all images were lost. Each archive is imported again once, and the images are known
// that archives have had. An event reports the loss.
func TestReportDamage(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "islet.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range []string{"file:1", "sha256:1", "image:docker.io/library/one:1"} {
		if err := s.AddImport(ctx, key, "one.tar"); err != nil {
			t.Fatal(err)
		}
	}
	told := 0
	c := Config{Store: s, RecordEvent: func(warning bool, reason, message string) {
		told++
		if !warning {
			t.Error("the event is not a warning")
		}
		eventtest.RecordEvent(v1.EventTypeWarning, reason, message)
	}}
	if imports := c.reportDamage(""); imports != s || told != 0 {
		t.Errorf("without damage: %T, %d events", imports, told)
	}
	imports := c.reportDamage("/state/containerd/meta.db could not be used: page 2 has the number 0. The records of all images were lost, and the " +
		"damaged files are kept with the suffix .corrupt-20260101T000000Z. Images are imported from their archives and pulled again")
	if told != 1 {
		t.Errorf("%d events", told)
	}
	has := func(key string, want bool) {
		t.Helper()
		if got, err := imports.WasImported(ctx, key); got != want || err != nil {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
	has("file:1", false)
	has("sha256:1", false)
	has("image:docker.io/library/one:1", true)
	has("image:docker.io/library/two:1", false)
	if err := imports.AddImport(context.Background(), "file:1", "one.tar"); err != nil {
		t.Fatal(err)
	}
	has("file:1", true)
	has("sha256:1", false)
}
