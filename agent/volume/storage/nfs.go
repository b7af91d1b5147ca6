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

// nfs is a directory of an NFS server. Each pod has a mount of its own, which the mount
// program makes with its helper mount.nfs. Whose server does not answer waits, and nobody
// else does: what may hang runs in programs that are killed, or in a goroutine of its own.
// https://kubernetes.io/docs/concepts/storage/volumes/#nfs
type nfs struct {
	// mount is mount, and unmount unmountRemote, but for tests.
	mount   func(ctx context.Context, source, target, fsType string, options []string) error
	unmount func(ctx context.Context, path string) error
}

func newNFS() nfs {
	return nfs{mount: mount, unmount: func(ctx context.Context, path string) error { return unmountRemote(ctx, path, umountTime) }}
}

func (nfs) Plugin() string                           { return "kubernetes.io/nfs" }
func (nfs) Serves(s *v1.PersistentVolumeSource) bool { return s.NFS != nil }

func (n nfs) Publish(ctx context.Context, v Volume, _ string, u Use) error {
	if there, err := mounts.On(u.Path); err != nil || there != nil {
		return err
	}
	if err := os.MkdirAll(u.Path, dirMode); err != nil {
		return err
	}
	source, err := exported(v.Source.NFS)
	if err != nil {
		return err
	}
	if err := n.mount(ctx, source, u.Path, "nfs", withReadOnly(v.MountOptions, v.ReadOnly)); err != nil {
		if _, lerr := lookHelper(); lerr != nil {
			err = fmt.Errorf("%w\nmount.nfs is not on this host: install nfs-common (Debian) or nfs-utils", err)
		}
		// It may have been mounted all the same.
		return errors.Join(err, n.unmount(context.WithoutCancel(ctx), u.Path))
	}
	return nil
}

// exported is the server and the path as the mount program has them. Neither can be taken
// for an option.
func exported(s *v1.NFSVolumeSource) (string, error) {
	if s.Server == "" || s.Server[0] == '-' || !filepath.IsAbs(s.Path) {
		return "", fmt.Errorf("the server %q or the path %q is not one of NFS", s.Server, s.Path)
	}
	if ip := net.ParseIP(s.Server); ip != nil && ip.To4() == nil {
		return "[" + s.Server + "]:" + s.Path, nil
	}
	return s.Server + ":" + s.Path, nil
}

func lookHelper() (string, error) {
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
