package images_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/local/images"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestImagesPrune checks that islet images prune keeps the image of each desired pod, even if the pod does not run.
func TestImagesPrune(t *testing.T) {
	n, _ := startNode(t)
	wanted := podtest.New("later", podtest.UID("uid-later"), podtest.Containers())
	wanted.Spec.InitContainers = []v1.Container{{Name: "i", Image: "localhost/web:1"}}
	n.Put(wanted)
	check(t, n, run(t, n, "", "images", "prune"), 0, "kept localhost/web:1 (5.0MiB): needed by pod default/later\n", "0 images, 0B\n")
	n.Remove("uid-later")
	n.Remove("uid-web-pi") // its image is localhost/nginx:1
	check(t, n, run(t, n, "", "images", "prune", "--dry-run"), 0, "would remove localhost/web:1 (5.0MiB)\n", "1 image, 5.0MiB\n")
	check(t, n, run(t, n, "", "images", "prune"), 0, "removed localhost/web:1 (5.0MiB)\n", "1 image, 5.0MiB\n")
	check(t, n, run(t, n, "", "images", "prune"), 0, "", "0 images, 0B\n")
}

// TestImagesPruneRest checks that the output has a separate line for data that belongs to no image.
func TestImagesPruneRest(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.Garbage = otherData{c.Garbage} })
	check(t, n, run(t, n, "", "images", "prune", "--dry-run"), 0, "",
		"0 images, 0B, and data of no image: interrupted downloads, unreferenced layers and content\n")
	check(t, n, run(t, n, "", "images", "prune"), 0, "", "0 images, 0B, and 3.0MiB of data that belonged to no image\n")
}

// otherData adds data of no image to the garbage collection.
type otherData struct{ images.Garbage }

func (otherData) Prune(_ context.Context, dry bool) api.Pruned {
	if dry {
		return api.Pruned{Rest: true}
	}
	return api.Pruned{Rest: true, Freed: 3 << 20}
}
