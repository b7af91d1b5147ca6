package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
)

// Programs tries other versions of islet. *update.Updater implements it.
type Programs interface {
	// UpdateFrom offers the newest of several archives for a trial, and returns nil if none is newer than the running version. If anew is
	// false, a version that has failed is an error. The error is trial.ErrBusy if no trial is possible now.
	UpdateFrom(ctx context.Context, list []update.Archive, anew bool, tell update.Progress) (*api.Update, error)
	// CheckOffer returns an error if no version can be offered now.
	CheckOffer(asked bool) error
	// Report returns the outcomes of versions for the state document, or nil. The channel is closed when they may have changed.
	Report() (*api.UpdateState, <-chan struct{})
}

// An updatingError means that a version of islet from the bundle is tried first. The agent restarts for it. Afterwards the bundle must be
// applied again: a followed source and a stick do so by themselves.
type updatingError struct {
	busyError
	bundle Bundle
	update api.Update
}

// updateFirst tries the version of islet that the bundle has for this machine, if it is newer than the running one. The error is then an
// updatingError. The trial of the version is separate from the trial of the bundle, because the running version may not know all fields of
// the bundle. The version stays if the bundle fails. Its archive must be signed by the keys for updates.
func (n *Node) updateFirst(ctx context.Context, l format.Layout, b *format.Bundle, id Bundle, q request, tell Progress) error {
	list, err := n.archives(l, b, id)
	if len(list) == 0 || err != nil {
		return err
	}
	if n.programs == nil {
		return errors.New("this node cannot try the version of islet in a bundle")
	}
	u, err := n.programs.UpdateFrom(ctx, list, !q.byNode(), tell)
	switch {
	case errors.Is(err, trial.ErrBusy):
		return busyError{err}
	case err != nil:
		return fmt.Errorf("the bundle's version of islet: %w", err)
	case u == nil:
		return nil
	}
	n.c.Log.Info("the version of islet in a bundle is tried first", "bundle", id.String(), "version", u.Version)
	return updatingError{busyError{fmt.Errorf("%s: its version %s of islet is tried first, and the agent restarts: the bundle can be "+
		"applied afterwards", id, u.Version)}, id, *u}
}

// checkOffer returns an error if a bundle has an archive of islet and no version can be tried now. It is called before a whole tar is
// fetched, whose releases cannot be read yet. Otherwise UpdateFrom decides, and it ignores versions that are not newer.
func (n *Node) checkOffer(b *format.Bundle, q request) error {
	if n.programs == nil || !slices.ContainsFunc(b.Files, func(f format.File) bool { return f.MediaType == format.MediaProgram }) {
		return nil
	}
	if err := n.programs.CheckOffer(!q.byNode()); err != nil {
		return busyError{err}
	}
	return nil
}

// archives returns the archives of islet in a bundle, with their releases.
func (n *Node) archives(l format.Layout, b *format.Bundle, id Bundle) (list []update.Archive, err error) {
	releases := map[string][]byte{} // by the name of the archive
	for _, f := range b.Files {
		if f.MediaType == format.MediaRelease {
			if releases[strings.TrimSuffix(f.Name, update.Suffix)], err = b.ReadFile(f); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range b.Files {
		if f.MediaType != format.MediaProgram {
			continue
		}
		text, found := releases[f.Name]
		if !found {
			return nil, fmt.Errorf("file %s: the bundle has no file %s%s", f.Name, f.Name, update.Suffix)
		}
		delete(releases, f.Name)
		list = append(list, update.Archive{Name: fmt.Sprintf("%s, file %s", id, f.Name), Release: text, Size: f.Size,
			Open: func() (io.ReadCloser, error) { return n.openArchive(l, f) }})
	}
	for name := range releases {
		return nil, fmt.Errorf("file %s%s: the bundle has no archive for it", name, update.Suffix)
	}
	return list, nil
}

// openArchive opens an archive. It fetches the archive if the bundle is on a server, and otherwise copies it, because the medium may be
// slow, and the updater accepts no other update while it reads an archive. The bytes are not verified: the caller compares them with the
// release.
func (n *Node) openArchive(l format.Layout, f format.File) (io.ReadCloser, error) {
	fetched, isFetched := l.(fetchedLayout)
	need := neededBytes([]int64{f.Size}, fetched)
	if !isFetched {
		need += f.Size
	}
	err := n.checkSpace(need)
	if err != nil {
		return nil, err
	}
	var r io.ReadCloser
	if isFetched {
		r, err = format.OpenBlob(l, f.Descriptor)
	} else {
		r, err = n.copyArchive(l, f)
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", f.Name, err)
	}
	return r, nil
}

// copyArchive copies an archive to an unnamed file, whose space is freed when the file is closed. If a power cut interrupts copyArchive,
// the method sweep removes the rest.
func (n *Node) copyArchive(l format.Layout, f format.File) (io.ReadCloser, error) {
	dir := filepath.Join(n.c.Dir, foldersDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	to, err := os.CreateTemp(dir, ".archive")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(to.Name()); err == nil || errors.Is(err, fs.ErrNotExist) { // sweep may have removed it already
		err = format.CopyBlob(to, l, f.Descriptor, format.MaxBlob)
	}
	if err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}
