package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/edge/manifest"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/runtime/cri"
)

// Progress is called with the current step, the number of bytes done so far, and the total number, or 0 if they are unknown.
type Progress = func(status string, current, total int64)

// A staged bundle is complete on this node, but not in force.
type staged struct {
	Bundle
	signed time.Time
	docs   *documents
	set    *set
	images []string // their names by digest
}

// stage verifies the signatures, number, target, expiry and manifests of a bundle, and checks the free space. Only then does it import the
// images and write the folder. If the bundle has a newer version of islet, that version is tried first: see updateFirst.
func (n *Node) stage(ctx context.Context, l format.Layout, r Record, q request, tell Progress) (s *staged, err error) {
	tell("verifying", 0, 0)
	b, err := format.Open(l, &n.c.Policy)
	if err != nil {
		return nil, err
	}
	s = &staged{Bundle: Bundle{b.Contents.Name, b.Contents.Number, b.ID}, signed: b.Signature.Time}
	if err := n.accept(b, s.Bundle, r, q); err != nil {
		return nil, err
	}
	repair := q.repair == s.Digest // its configuration and version of islet may have been replaced since
	if repair && q.isOld {
		defer func() {
			if err != nil && ctx.Err() == nil { // the bundle in use needs nothing of that
				n.c.Log.Info("the manifest of the bundle in use cannot be stored", "error", err)
				s, err = nil, ErrInUse
			}
		}()
	}
	if !repair {
		if err := n.updateFirst(ctx, l, b, s.Bundle, q, tell); err != nil {
			return nil, err
		}
	}
	if s.docs, err = readDocuments(b); err != nil {
		return nil, err
	}
	inv, err := readInventory(s.docs.files)
	if err != nil {
		return nil, err
	}
	if missing := b.Missing(inv); len(missing) > 0 {
		return nil, fmt.Errorf("%s: build it again: islet bundle verify names everything that is missing", strings.Join(missing, "; "))
	}
	if s.set, err = n.decode(s.docs); err != nil {
		return nil, err
	}
	if !repair {
		if err := n.checkNames(s.set); err != nil {
			return nil, err
		}
		if _, _, err := n.planConfiguration(s); err != nil {
			return nil, err
		}
	}
	return s, n.importImages(ctx, l, b, s, r, tell)
}

// readDocuments reads the files of a bundle. They have at most 16 MiB in all.
func readDocuments(b *format.Bundle) (*documents, error) {
	docs := &documents{contents: b.Contents, signatures: b.Signature.Text.Bytes()}
	var err error
	if docs.manifest, err = b.ReadManifest(); err != nil {
		return nil, err
	}
	for _, f := range b.Files {
		if f.MediaType == format.MediaProgram || f.MediaType == format.MediaRelease { // see updateFirst
			continue
		}
		data, err := b.ReadFile(f)
		if err != nil {
			return nil, err
		}
		switch f.MediaType {
		case format.MediaKubelet:
			docs.kubelet = string(data)
		case format.MediaEdge:
			docs.edge = string(data)
		default:
			docs.files = append(docs.files, finding.File{Name: f.Name, Data: data})
		}
	}
	sorting.By(docs.files, func(a, b finding.File) int { return strings.Compare(a.Name, b.Name) })
	return docs, nil
}

// readInventory returns what the files define and need.
func readInventory(files []finding.File) (*format.Inventory, error) {
	var plain []finding.File
	var objects []format.Object
	for _, f := range files {
		if !strings.HasSuffix(f.Name, format.SealedSuffix) {
			plain = append(plain, f)
			continue
		}
		docs, err := sealed.Parse(f.Data)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Name, err)
		}
		for _, d := range docs {
			m := d.Metadata
			objects = append(objects, format.Object{Kind: podspec.Secret, Namespace: m.Namespace, Name: m.Name, Keys: d.Keys})
		}
	}
	inv, err := inventory.Read(plain)
	if err == nil {
		inv.Objects = append(inv.Objects, objects...)
	}
	return inv, err
}

// checkNames returns an error if a pod or claim of the bundle has the name of one that comes from elsewhere.
func (n *Node) checkNames(s *set) error {
	var errs []error
	clash := func(kind, name, origin, other string) {
		errs = append(errs, fmt.Errorf("metadata.name: %s %s is in %s, and is already defined by %s: "+
			"remove it there, or choose another name", kind, name, origin, other))
	}
	for _, c := range s.sourcePods {
		for _, p := range n.c.Desired.List() {
			if podName(p.Pod) == podName(c.Pod) && p.Source != desired.Bundle && !p.Deleting {
				clash("pod", podName(c.Pod), c.Origin, cmp.Or(p.Origin, "the source "+p.Source))
			}
		}
	}
	for _, o := range s.objects {
		kind, namespace, name := manifest.KindOf(o.Object), o.Object.GetNamespace(), o.Object.GetName()
		for _, i := range n.c.Objects.List() {
			same := i.Kind == kind && i.Namespace == namespace && i.Name == name && i.Source != desired.Bundle && !i.Gone
			if same && kind == podspec.Claim { // ConfigMaps and Secrets of a source are only for its pods
				clash(kind, namespace+"/"+name, o.Origin, cmp.Or(i.Origin, "the source "+i.Source))
			}
		}
	}
	return errors.Join(errs...)
}

// A fetchedLayout is a layout on a server. *feed.Layout implements it.
type fetchedLayout interface {
	FetchedBytes() int64
	Imported() error
}

// neededBytes returns the number of bytes that images need on the disk, by the sizes of their missing layers. The layers of one image at a
// time are fetched from a server before they are unpacked. The layout may be nil.
func neededBytes(sizes []int64, l fetchedLayout) (sum int64) {
	largest := int64(0)
	for _, size := range sizes {
		sum, largest = sum+size, max(largest, size)
	}
	if l != nil {
		sum += max(largest-l.FetchedBytes(), 0)
	}
	return sum
}

// importImages imports the images of a bundle for this host. From now on they are pinned, together with the images of the bundles in the
// record.
func (n *Node) importImages(ctx context.Context, l format.Layout, b *format.Bundle, s *staged, r Record, tell Progress) error {
	var sizes []int64
	for _, img := range b.Contents.Images {
		chosen, err := n.c.Images.ChooseBundleImage(img)
		if err != nil {
			return fmt.Errorf("platforms: %w", err)
		}
		missing, err := n.c.Images.MissingBytes(ctx, l, chosen)
		if err != nil {
			return err
		}
		sizes = append(sizes, missing)
		s.images = append(s.images, chosen.Name)
	}
	fetched, isFetched := l.(fetchedLayout)
	need := neededBytes(sizes, fetched)
	for _, f := range s.docs.files {
		need += int64(len(f.Data))
	}
	if err := n.checkSpace(need); err != nil {
		return err
	}
	n.mu.Lock()
	n.staging.digest, n.staging.images = s.Digest, s.images
	n.mu.Unlock()
	n.pin()
	for i, img := range b.Contents.Images {
		chosen, err := n.c.Images.ChooseBundleImage(img)
		if err != nil {
			return err
		}
		tell("unpacking "+img.Name, int64(i), int64(len(b.Contents.Images)))
		if err := n.c.Images.ImportBundleImage(ctx, l, chosen, func(cri.ImportProgress) {}); err != nil {
			return err
		}
		n.step("image")
		if isFetched {
			if err := fetched.Imported(); err != nil {
				return err
			}
		}
	}
	if slices.ContainsFunc(r.Keeps(), func(b Bundle) bool { return b.Digest == s.Digest }) && n.isComplete(ctx, s.Bundle) {
		return nil // an earlier application has written the folder
	}
	return n.write(s.Digest, s.docs)
}

// reserved is the space that a bundle leaves free for pods and the database, in bytes.
const reserved = 64 << 20

// checkSpace returns an error if the disk has no space for the given number of bytes. Unpacked layers need more than their compressed size,
// so the import checks the space again.
func (n *Node) checkSpace(need int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(n.c.Dir, &disk); err != nil {
		return fmt.Errorf("%s: %w", n.c.Dir, err)
	}
	if free := int64(disk.Bavail) * int64(disk.Bsize); free-reserved < need {
		return fmt.Errorf("%s has %d MiB free, but the bundle needs %d MiB, and %d MiB must stay free: "+
			"free some space (islet df, islet images prune)", n.c.Dir, free>>20, (need+1<<20-1)>>20, reserved>>20)
	}
	return nil
}
