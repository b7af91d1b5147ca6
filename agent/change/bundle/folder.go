package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Names in the state directory, and in the folder of a bundle.
const (
	foldersDir     = "bundles"
	filesDir       = "files"
	contentsFile   = "contents.json"
	manifestFile   = "manifest.json" // the contents manifest, with the digests of the other files
	signaturesFile = "signatures"
)

// folderName is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func folderName(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() }

// unfinishedName is the name of a folder that is being written.
func unfinishedName(d digest.Digest) string { return "." + folderName(d) + ".new" }

// documents contains the files of a bundle that the node still needs after the import of its images.
type documents struct {
	contents   *format.Contents
	manifest   []byte // the contents manifest; nil if an earlier version of islet has written the folder
	signatures []byte
	files      []finding.File // sorted by name; a name with the suffix .sealed.yaml means sealed Secrets
	// The configurations. They are in no folder: the record of configurations has them as soon as the bundle is on trial.
	kubelet, edge string
}

// write stores the documents of a bundle durably, in a folder that is complete or does not exist.
func (n *Node) write(d digest.Digest, docs *documents) error {
	parent := filepath.Join(n.c.Dir, foldersDir)
	folder, next := filepath.Join(parent, folderName(d)), filepath.Join(parent, unfinishedName(d))
	contents, err := docs.contents.Encode()
	if err != nil {
		return err
	}
	if err := errors.Join(mounts.RemoveAll(next), os.MkdirAll(filepath.Join(next, filesDir), 0o700)); err != nil {
		return err
	}
	all := append(slices.Clone(docs.files), finding.File{Name: contentsFile, Data: contents},
		finding.File{Name: manifestFile, Data: docs.manifest})
	for i, f := range append(all, finding.File{Name: signaturesFile, Data: docs.signatures}) {
		dir := next
		if i < len(docs.files) {
			dir = filepath.Join(next, filesDir)
		}
		if err := writeFile(filepath.Join(dir, f.Name), f.Data); err != nil {
			return err
		}
		n.step("file " + f.Name)
	}
	if err := errors.Join(durable.SyncDir(filepath.Join(next, filesDir)), durable.SyncDir(next)); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, folder, unix.RENAME_EXCHANGE) // of a bundle that is repaired
	if err != nil {
		err = errors.Join(mounts.RemoveAll(folder), os.Rename(next, folder))
	}
	if err != nil {
		return err
	}
	n.step("folder")
	return errors.Join(durable.SyncDir(parent), durable.SyncDir(n.c.Dir), mounts.RemoveAll(next))
}

func writeFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// read reads the documents of a bundle from its folder, and verifies their digests.
func (n *Node) read(b Bundle) (*documents, error) {
	folder := filepath.Join(n.c.Dir, foldersDir, folderName(b.Digest))
	docs, err := readFolder(folder, b.Digest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: apply %s again to repair the folder", folder, err, b)
	}
	return docs, nil
}

func readFolder(folder string, id digest.Digest) (*documents, error) {
	text, err := os.ReadFile(filepath.Join(folder, contentsFile))
	if err != nil {
		return nil, err
	}
	docs := &documents{contents: &format.Contents{}}
	list, err := os.ReadDir(filepath.Join(folder, filesDir))
	for _, e := range list {
		data, e2 := os.ReadFile(filepath.Join(folder, filesDir, e.Name()))
		err = errors.Join(err, e2)
		docs.files = append(docs.files, finding.File{Name: e.Name(), Data: data})
	}
	if err != nil {
		return nil, err
	}
	docs.manifest, err = os.ReadFile(filepath.Join(folder, manifestFile))
	switch {
	case err == nil:
		err = docs.verify(text, id)
	case errors.Is(err, fs.ErrNotExist): // an earlier version of islet has written the folder
		err = nil
	}
	if err == nil {
		err = json.Unmarshal(text, docs.contents)
	}
	return docs, err
}

// verify returns an error unless contents.json and the files are those of the contents manifest.
func (d *documents) verify(contents []byte, id digest.Digest) error {
	want, files, err := format.ParseManifest(d.manifest, id)
	if err != nil {
		return fmt.Errorf("%s: %w", manifestFile, err)
	}
	if digest.FromBytes(contents) != want {
		return fmt.Errorf("%s: the file is damaged", contentsFile)
	}
	count := 0
	for _, f := range files {
		if f.MediaType != format.MediaManifest && f.MediaType != format.MediaSealed { // they are in no folder
			continue
		}
		count++
		same := func(have finding.File) bool { return have.Name == f.Name && digest.FromBytes(have.Data) == f.Digest }
		if !slices.ContainsFunc(d.files, same) {
			return fmt.Errorf("%s: the file is missing or damaged", f.Name)
		}
	}
	if count != len(d.files) {
		return fmt.Errorf("%s has %d files instead of %d", filesDir, len(d.files), count)
	}
	return nil
}

// isComplete reports whether the node has all documents and images of a bundle.
func (n *Node) isComplete(ctx context.Context, b Bundle) bool {
	docs, err := n.read(b)
	return err == nil && docs.manifest != nil && n.hasImages(ctx, docs)
}

func (n *Node) hasImages(ctx context.Context, docs *documents) bool {
	return !slices.ContainsFunc(docs.contents.Images, func(img format.Image) bool {
		chosen, err := n.c.Images.ChooseBundleImage(img)
		return err != nil || !n.c.Images.HasBundleImage(ctx, chosen)
	})
}

// sweep removes the folders of bundles that the node does not keep, and those that are not complete. It leaves the folder that is being
// staged.
func (n *Node) sweep() error {
	parent := filepath.Join(n.c.Dir, foldersDir)
	list, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keep := map[string]bool{}
	n.mu.Lock()
	for _, b := range n.record.Keeps() {
		keep[folderName(b.Digest)] = true
	}
	if d := n.staging.digest; d != "" {
		keep[folderName(d)], keep[unfinishedName(d)] = true, true
	}
	n.mu.Unlock()
	for _, e := range list {
		if !keep[e.Name()] {
			err = errors.Join(err, mounts.RemoveAll(filepath.Join(parent, e.Name())))
		}
	}
	return err
}

// imageNames returns the name by digest of each image of a bundle by its name in manifests.
func (n *Node) imageNames(c *format.Contents) (map[string]string, error) {
	names := map[string]string{}
	for _, img := range c.Images {
		chosen, err := n.c.Images.ChooseBundleImage(img)
		if err != nil {
			return nil, err
		}
		names[img.Name] = chosen.Name
	}
	return names, nil
}

// A set contains the pods and objects of a bundle, as the source "bundle" reports them.
type set struct {
	sourcePods []desired.SourcePod
	objects    []local.DefinedObject
}

func (s *set) pods() (list []*v1.Pod) {
	for _, c := range s.sourcePods {
		list = append(list, c.Pod)
	}
	return list
}

// uids returns the UID of each pod by its namespace/name.
func (s *set) uids() map[string]types.UID {
	out := map[string]types.UID{}
	for _, c := range s.sourcePods {
		out[podName(c.Pod)] = c.Pod.UID
	}
	return out
}

// decode returns the pods and objects of a bundle. It opens the sealed Secrets.
func (n *Node) decode(docs *documents) (*set, error) {
	names, err := n.imageNames(docs.contents)
	if err != nil {
		return nil, err
	}
	out := &set{}
	for _, f := range docs.files {
		origin := fmt.Sprintf("%s of bundle %s", f.Name, docs.contents.Name) // it does not change with the number
		texts := [][]byte{f.Data}
		if strings.HasSuffix(f.Name, format.SealedSuffix) {
			if texts, err = n.openSecrets(f); err != nil {
				return nil, err
			}
		}
		for _, text := range texts {
			m, err := manifest.Decode(text, manifest.Options{
				Origin: origin, Source: keys.SourceBundle, NodeName: n.c.Name, Seen: time.Now(), Lists: true, Images: names,
			})
			if err != nil {
				return nil, err
			}
			for _, p := range m.Pods {
				out.sourcePods = append(out.sourcePods, desired.SourcePod{Pod: p, Origin: origin})
			}
			for _, o := range m.Objects {
				out.objects = append(out.objects, local.DefinedObject{Object: o, Origin: origin})
			}
		}
	}
	return out, nil
}

// errNoIdentity is the error for a sealed Secret on a node that cannot open any.
var errNoIdentity = errors.New("this node has no key for sealed Secrets: islet key recipient creates one")

// openSecrets decrypts the Secrets of a sealed file. They are only in memory, and later in the database, like the Secrets of islet apply.
func (n *Node) openSecrets(f finding.File) (texts [][]byte, err error) {
	docs, err := sealed.Parse(f.Data)
	for i := range docs {
		if n.c.OpenSecret == nil {
			return nil, fmt.Errorf("file %s: Secret %s/%s: %w", f.Name, docs[i].Metadata.Namespace, docs[i].Metadata.Name, errNoIdentity)
		}
		var s *sealed.Secret
		if s, err = n.c.OpenSecret(&docs[i]); err != nil {
			break
		}
		texts = append(texts, s.JSON)
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", f.Name, err)
	}
	return texts, nil
}
