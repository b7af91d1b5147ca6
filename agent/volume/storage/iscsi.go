package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/printable"
)

// Exit codes of iscsiadm that count as success.
const (
	iscsiSessionExists = 15 // already logged in
	iscsiNoObjects     = 21 // nothing to delete or log out of
)

const (
	iscsiPlugin = "kubernetes.io/iscsi"
	iscsiPort   = "3260"
	iscsiDevice = 30 * time.Second // maximum time between the login and the appearance of the device
	deviceGap   = 200 * time.Millisecond
)

// iscsi implements Driver for disks of iSCSI targets. It logs in with the program iscsiadm. The device is mounted
// once for the node. This mount is then bound into the pods' directories. Several portals are several paths to the
// same disk. The first portal that provides a device is used.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#iscsi
type iscsi struct {
	root    string
	objects Objects
	admin   func(ctx context.Context, args ...string) (string, error) // iscsiadm
	byPath  string                                                    // /dev/disk/by-path

	mu      sync.Mutex
	targets map[string]chan struct{} // locks of capacity 1 for logins and logouts, by IQN
}

func newISCSI(root string, objects Objects) *iscsi {
	return &iscsi{root: root, objects: objects, byPath: "/dev/disk/by-path", targets: map[string]chan struct{}{},
		admin: func(ctx context.Context, args ...string) (string, error) {
			return programOutput(ctx, "iscsiadm", args...)
		}}
}

func (*iscsi) Plugin() string                           { return iscsiPlugin }
func (*iscsi) Serves(s *v1.PersistentVolumeSource) bool { return s.ISCSI != nil }
func (*iscsi) SetsGroup(Volume, Use) bool               { return true }
func (*iscsi) MountsLabel(*v1.Pod, Volume) bool         { return true }

// StagePath returns the path at which the disk is mounted for the node. For a block volume, it returns the path of a
// link to the device. The path contains the first portal, the target and the LUN.
func (d *iscsi) StagePath(v Volume) string {
	s, kind := v.Source.ISCSI, "iface-"+interfaceName(v.Source.ISCSI)
	if v.Block {
		kind = filepath.Join("volumeDevices", kind)
	}
	return filepath.Join(d.root, "plugins", "kubernetes.io", "iscsi", kind,
		fmt.Sprintf("%s-%s-lun-%d", canonicalPortal(s.TargetPortal), s.IQN, s.Lun))
}

// checkNames checks the names in a source that become parts of paths, of the volume's ID and of arguments.
func checkNames(s *v1.PersistentVolumeSource) error {
	var names []string
	switch {
	case s.ISCSI != nil:
		names = append([]string{s.ISCSI.IQN, interfaceName(s.ISCSI), s.ISCSI.TargetPortal}, s.ISCSI.Portals...)
	case s.CSI != nil:
		names = []string{s.CSI.Driver}
	}
	for _, name := range names {
		if name == "" || name == ".." || name[0] == '-' || strings.ContainsAny(name, "/ ") || printable.Line(name) != name {
			return fmt.Errorf("%q is not a name of a driver, target, interface or portal", name)
		}
	}
	return nil
}

// iscsiID returns the ID of a disk. Its portal is canonical, as in StagePath, because two IDs with the same path would be one mount with
// two owners. The first of them to end would unmount the disk of the other one.
func iscsiID(s *v1.ISCSIPersistentVolumeSource) string {
	return fmt.Sprintf("%s/%s:%s:%d", iscsiPlugin, canonicalPortal(s.TargetPortal), s.IQN, s.Lun)
}

// canonicalPortal returns one spelling of a portal: with its port, and with the shortest form of an IP address.
func canonicalPortal(portal string) string {
	host, port, err := net.SplitHostPort(withPort(portal))
	if err != nil {
		return portal
	}
	host = strings.ToLower(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return net.JoinHostPort(host, port)
}

func interfaceName(s *v1.ISCSIPersistentVolumeSource) string {
	if s.ISCSIInterface == "" {
		return "default"
	}
	return s.ISCSIInterface
}

func withPort(portal string) string {
	if _, _, err := net.SplitHostPort(portal); err == nil {
		return portal
	}
	return net.JoinHostPort(strings.Trim(portal, "[]"), iscsiPort)
}

func listPortals(s *v1.ISCSIPersistentVolumeSource) []string {
	all := []string{withPort(s.TargetPortal)}
	for _, p := range s.Portals {
		if p = withPort(p); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

func (d *iscsi) Stage(ctx context.Context, v Volume, path string, u Use) error {
	s := v.Source.ISCSI
	if s.InitiatorName != nil {
		return errors.New("iscsi: initiatorName is not supported by this node")
	}
	dev, err := d.attachAt(ctx, v, path, u)
	if err != nil || v.Block {
		return err
	}
	return mountDevice(ctx, dev, path, s.FSType, false, v.MountOptions)
}

// attachAt logs in, and returns the disk's device. It links a block volume to its device. Otherwise it creates the directory at which
// the device is to be mounted, so that the target counts as in use. The target is locked only meanwhile: the check and the formatting
// of one disk must not delay the target's other disks.
func (d *iscsi) attachAt(ctx context.Context, v Volume, path string, u Use) (dev string, err error) {
	leave, err := d.lockTarget(ctx, v.Source.ISCSI.IQN)
	if err != nil {
		return "", err
	}
	defer leave()
	if dev, err = d.attachDisk(ctx, v, u); err != nil {
		return "", err
	}
	if v.Block {
		return dev, linkDevice(dev, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dev, nil
}

// lockTarget locks a target. It returns a function that unlocks the target.
func (d *iscsi) lockTarget(ctx context.Context, iqn string) (leave func(), err error) {
	d.mu.Lock()
	turn := d.targets[iqn]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.targets[iqn] = turn
	}
	d.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// attachDisk logs in through one portal after the other until one provides the disk, and returns the disk's device.
func (d *iscsi) attachDisk(ctx context.Context, v Volume, u Use) (string, error) {
	s := v.Source.ISCSI
	auth, err := d.chapSecret(v, u)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, portal := range listPortals(s) {
		if err := d.logIn(ctx, s, portal, auth); err != nil {
			if errors.Is(err, exec.ErrNotFound) {
				return "", fmt.Errorf("%w: install open-iscsi (Debian) or iscsi-initiator-utils", err)
			}
			errs = append(errs, err)
			continue
		}
		dev := filepath.Join(d.byPath, "ip-"+portal+"-iscsi-"+s.IQN+fmt.Sprintf("-lun-%d", s.Lun))
		if err := waitDevice(ctx, dev); err != nil {
			errs = append(errs, err)
			continue
		}
		return filepath.EvalSymlinks(dev)
	}
	return "", fmt.Errorf("failed to get any path for iscsi disk, last err seen:\n%w", errors.Join(errs...))
}

// chapSecret returns the CHAP credentials. It returns nil if CHAP is not configured.
func (d *iscsi) chapSecret(v Volume, u Use) (map[string][]byte, error) {
	s := v.Source.ISCSI
	if !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth {
		return nil, nil
	}
	if s.SecretRef == nil || d.objects == nil {
		return nil, errors.New("iscsi: CHAP requires a secretRef and an API server")
	}
	namespace := s.SecretRef.Namespace
	if namespace == "" {
		namespace = u.Pod.Namespace
	}
	secret, err := d.objects.VolumeSecret(u.Pod, namespace, s.SecretRef.Name)
	if err != nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s error: %w", namespace, s.SecretRef.Name, err)
	}
	return secret.Data, nil
}

// logIn creates iscsiadm's records for a target and logs in.
func (d *iscsi) logIn(ctx context.Context, s *v1.ISCSIPersistentVolumeSource, portal string, auth map[string][]byte) error {
	discovery := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", interfaceName(s)}
	node := []string{"-m", "node", "-p", portal, "-T", s.IQN, "-I", interfaceName(s)}
	if _, err := d.admin(ctx, append(slices.Clone(discovery), "-o", "new")...); err != nil {
		return err
	}
	if s.DiscoveryCHAPAuth {
		if err := d.setCHAP(ctx, discovery, "discovery.sendtargets.auth.", auth); err != nil {
			return err
		}
	}
	if _, err := d.admin(ctx, append(slices.Clone(discovery), "--discover")...); err != nil {
		return fmt.Errorf("iscsi: failed to sendtargets to portal %s: %w", portal, errors.Join(err, d.deleteRecord(ctx, discovery)))
	}
	if s.SessionCHAPAuth {
		if err := d.setCHAP(ctx, node, "node.session.auth.", auth); err != nil {
			return err
		}
	}
	if _, err := d.admin(ctx, append(slices.Clone(node), "--login")...); err != nil && exitCode(err) != iscsiSessionExists {
		return fmt.Errorf("iscsi: failed to attach disk: %w", errors.Join(err, d.deleteRecord(ctx, node)))
	}
	// With manual startup, the host does not log in when it boots.
	_, err := d.admin(ctx, append(slices.Clone(node), "-o", "update", "-n", "node.startup", "-v", "manual")...)
	return err
}

// deleteRecord deletes a record of iscsiadm, even if ctx has ended. It waits at most umountTime, because iscsiadm may wait for ever for its
// daemon or for its database.
func (d *iscsi) deleteRecord(ctx context.Context, record []string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), umountTime)
	defer stop()
	_, err := d.admin(ctx, append(slices.Clone(record), "-o", "delete")...)
	return err
}

// setCHAP stores the Secret's credentials in iscsiadm's records, for discovery or for sessions. Its errors do not
// contain the program's arguments, because these include the password.
func (d *iscsi) setCHAP(ctx context.Context, record []string, prefix string, auth map[string][]byte) error {
	set := func(name, value string) error {
		if _, err := d.admin(ctx, append(slices.Clone(record), "-o", "update", "-n", name, "-v", value)...); err != nil {
			return fmt.Errorf("iscsi: failed to update %s (exit code %d)", name, exitCode(err))
		}
		return nil
	}
	if err := set(prefix+"authmethod", "CHAP"); err != nil {
		return err
	}
	for _, key := range []string{"username", "password", "username_in", "password_in"} {
		if value := auth[prefix+key]; len(value) > 0 {
			if err := set(prefix+key, string(value)); err != nil {
				return err
			}
		}
	}
	return nil
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return -1
}

func waitDevice(ctx context.Context, path string) error {
	ctx, stop := context.WithTimeout(ctx, iscsiDevice)
	defer stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-time.After(deviceGap):
		case <-ctx.Done():
			return fmt.Errorf("timed out waiting for device at path %s after %s", path, iscsiDevice)
		}
	}
}

// Unstage unmounts the disk. It then logs out of the target, unless the node uses another disk of the same target.
func (d *iscsi) Unstage(ctx context.Context, v Volume, path string) error {
	s := v.Source.ISCSI
	leave, err := d.lockTarget(ctx, s.IQN)
	if err != nil {
		return err
	}
	defer leave()
	if v.Block {
		err = unlinkDevice(path)
	} else {
		err = unmountDevice(path)
	}
	if err != nil {
		return err
	}
	others, err := d.targetInUse(s.IQN)
	if err != nil || others {
		return err
	}
	var errs []error
	for _, portal := range listPortals(s) {
		node := []string{"-m", "node", "-p", portal, "-T", s.IQN, "-I", interfaceName(s)}
		for _, step := range [][]string{{"--logout"}, {"-o", "delete"}} {
			if _, err := d.admin(ctx, append(slices.Clone(node), step...)...); err != nil && exitCode(err) != iscsiNoObjects {
				errs = append(errs, fmt.Errorf("iscsi: failed to detach disk: %w", err))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// targetInUse reports whether any disk of the target is mounted or linked for this node.
func (d *iscsi) targetInUse(iqn string) (bool, error) {
	top := filepath.Join(d.root, "plugins", "kubernetes.io", "iscsi")
	for _, pattern := range []string{"iface-*", "volumeDevices/iface-*"} {
		dirs, err := fs.Glob(os.DirFS(top), pattern)
		if err != nil {
			return false, err
		}
		for _, dir := range dirs {
			entries, err := os.ReadDir(filepath.Join(top, dir))
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.Contains(e.Name(), "-"+iqn+"-lun-") }) {
				return true, nil
			}
		}
	}
	return false, nil
}

func (d *iscsi) Publish(ctx context.Context, v Volume, staged string, u Use) error {
	if v.Block {
		dev, err := filepath.EvalSymlinks(staged)
		if err != nil {
			return err
		}
		return linkDevice(dev, u.Path)
	}
	return bindMount(ctx, staged, u.Path, v.ReadOnly, nil)
}

func (d *iscsi) Unpublish(_ context.Context, v Volume, _ types.UID, path string) error {
	if v.Block {
		return unlinkDevice(path)
	}
	return removeBindMount(path)
}

// builtInDrivers returns the drivers that every node has.
func builtInDrivers(root string, objects Objects) []Driver {
	return []Driver{hostPath{}, localDriver{root}, newNFS(), newISCSI(root, objects)}
}
