package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// nfs implements Driver for directories of an NFS server. The mount program, with its helper mount.nfs, creates a
// separate mount for each pod. A server that does not respond affects only the pods that use it, because calls that
// may block run in separate programs, which can be killed, or in separate goroutines.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#nfs
type nfs struct {
	// These fields contain the functions runMount and unmountRemote. Tests replace them.
	mount   func(ctx context.Context, source, target, fsType string, options []string) error
	unmount func(ctx context.Context, path string) error
}

func newNFS() nfs {
	return nfs{mount: runMount, unmount: func(ctx context.Context, path string) error { return unmountRemote(ctx, path, umountTime) }}
}

func (nfs) Plugin() string                           { return "kubernetes.io/nfs" }
func (nfs) Serves(s *v1.PersistentVolumeSource) bool { return s.NFS != nil }

func (n nfs) Publish(ctx context.Context, v Volume, _ string, u Use) error {
	if there, err := mounts.FindTopmost(u.Path); err != nil || there != nil {
		return err
	}
	if err := os.MkdirAll(u.Path, dirMode); err != nil {
		return err
	}
	source, err := nfsSource(v.Source.NFS)
	if err != nil {
		return err
	}
	if err := n.mount(ctx, source, u.Path, "nfs", withReadOnly(v.MountOptions, v.ReadOnly)); err != nil {
		if _, lerr := findMountHelper(); lerr != nil {
			err = fmt.Errorf("%w\nmount.nfs is not on this host: install nfs-common (Debian) or nfs-utils", err)
		}
		// The volume may be mounted despite the error.
		return errors.Join(err, n.unmount(context.WithoutCancel(ctx), u.Path))
	}
	return nil
}

// nfsSource returns the source argument for the mount program. It cannot be mistaken for an option.
func nfsSource(s *v1.NFSVolumeSource) (string, error) {
	if s.Server == "" || s.Server[0] == '-' || !filepath.IsAbs(s.Path) {
		return "", fmt.Errorf("the server %q or the path %q is not valid for NFS", s.Server, s.Path)
	}
	if ip := net.ParseIP(s.Server); ip != nil && ip.To4() == nil {
		return "[" + s.Server + "]:" + s.Path, nil
	}
	return s.Server + ":" + s.Path, nil
}

func findMountHelper() (string, error) {
	for _, dir := range []string{"/sbin", "/usr/sbin", "/usr/local/sbin"} {
		if fi, err := os.Stat(filepath.Join(dir, "mount.nfs")); err == nil {
			return filepath.Join(dir, fi.Name()), nil
		}
	}
	return "", os.ErrNotExist
}

func (n nfs) Unpublish(ctx context.Context, _ Volume, _ types.UID, path string) error {
	return n.unmount(ctx, path)
}
