package daemon

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A blob survives a restart while something refers to it, and is collected when
// its lease is deleted.
func TestStorage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	c := Config{Root: t.TempDir(), Snapshotter: Native, Log: slog.New(slog.DiscardHandler)}
	d := start(t, c)
	if _, err := Start(ctx, c); err == nil {
		t.Fatal("two daemons opened one root")
	}
	lease, err := d.Client().LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	const blob = "some bytes"
	desc := ocispec.Descriptor{Digest: digest.FromString(blob), Size: int64(len(blob))}
	if err := content.WriteBlob(leases.WithLease(ctx, lease.ID), d.Client().ContentStore(), "x", strings.NewReader(blob), desc); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = start(t, c)
	if _, err := d.Client().ContentStore().Info(ctx, desc.Digest); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	if err := d.Client().LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Client().ContentStore().Info(ctx, desc.Digest); err == nil {
		t.Fatal("garbage was not collected")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, c Config) *Daemon {
	t.Helper()
	d, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
