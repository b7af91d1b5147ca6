package remote

import (
	"context"
	"fmt"
	"strings"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/registry"
)

// Push writes a bundle to a registry. It sets the tag last, so after an incomplete push the tag still names the old bundle. It does not
// send blobs that the registry already has. It calls a.Progress as WriteTar does.
func Push(ctx context.Context, a *bundle.Artefact, name string, c registry.Config) error {
	if strings.Contains(name, "@") {
		return fmt.Errorf("%s: a bundle is written to a tag, not to a digest", name)
	}
	client, err := newClient(name, c)
	if err != nil {
		return err
	}
	defer client.Close()
	var done int64
	return a.Visit(func(p bundle.Part, isRoot bool) error {
		sent := int64(0)
		err := client.Push(ctx, p.Descriptor, isRoot, p.Open, func(n int) error {
			sent += int64(n)
			return report(a, min(done+sent, done+p.Size))
		})
		if err != nil {
			return err
		}
		done += p.Size
		return report(a, done)
	})
}

// report reports the progress. The total does not include the signatures and the root, so report limits done to the total.
func report(a *bundle.Artefact, done int64) error {
	if a.Progress == nil {
		return nil
	}
	return a.Progress(min(done, a.Contents.Size), a.Contents.Size)
}
