package csi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/runtime/mounts"
)

const (
	dirMode  = 0o750
	dataFile = "vol_data.json"
)

// Keys of vol_data.json, as in a kubelet.
const (
	dataName       = "specVolID"
	dataHandle     = "volumeHandle"
	dataDriver     = "driverName"
	dataNode       = "nodeName"
	dataAttachment = "attachmentID"
	dataLabel      = "seLinuxMountContext"
	dataMode       = "volumeLifecycleMode"
)

// pluginPath joins elem to the node's directory for CSI volumes.
func (d *Drivers) pluginPath(elem ...string) string {
	return filepath.Join(append([]string{d.root, "plugins", pluginName}, elem...)...)
}

// PodPath returns the path at which the driver mounts the volume for a pod. The path of a filesystem volume is one
// level below the usual directory, next to vol_data.json.
func (d *Drivers) PodPath(v storage.Volume, usual string) string {
	if v.Block {
		return usual
	}
	return filepath.Join(usual, "mount")
}

// StagePath returns the staging path of a volume. It returns "" if the volume is not staged. It also returns a path
// if the driver is not registered, because the driver may support staging.
func (d *Drivers) StagePath(v storage.Volume) string {
	switch {
	case v.Inline:
		return ""
	case v.Block:
		return d.pluginPath("volumeDevices", "staging", v.Name)
	}
	return d.pluginPath(v.Source.CSI.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(v.Source.CSI.VolumeHandle))), "globalmount")
}

// publishPath returns the path at which a driver creates the device of a block volume for a pod.
func (d *Drivers) publishPath(v storage.Volume, uid types.UID) string {
	return d.pluginPath("volumeDevices", "publish", v.Name, string(uid))
}

// stagedData returns the path of the vol_data.json of a volume that is staged at path.
func (d *Drivers) stagedData(v storage.Volume, path string) string {
	if v.Block {
		return d.pluginPath("volumeDevices", v.Name, "data", dataFile)
	}
	return filepath.Join(filepath.Dir(path), dataFile)
}

// podUID returns the UID of the pod to which a volume path belongs, or "" if it belongs to no pod.
func (d *Drivers) podUID(path string) types.UID {
	rest, ok := strings.CutPrefix(path, filepath.Join(d.root, "pods")+"/")
	if uid, _, more := strings.Cut(rest, "/"); ok && more {
		return types.UID(uid)
	}
	return ""
}

// volumeID returns the ID that identifies the volume to its driver. The ID of an inline volume is derived from its
// pod.
func volumeID(v storage.Volume, uid types.UID) string {
	if v.Inline {
		return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+v.Name)))
	}
	return v.Source.CSI.VolumeHandle
}

// attachmentName returns the name of the VolumeAttachment of a volume on this node.
func (d *Drivers) attachmentName(v storage.Volume) string {
	s := v.Source.CSI
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(s.VolumeHandle+s.Driver+d.cfg.Node)))
}

// checkSource returns an error for names that are missing or would lead out of the plugin directory.
func checkSource(v storage.Volume) error {
	if s := v.Source.CSI; s == nil || s.Driver == "" || s.Driver == "." || s.Driver == ".." ||
		strings.ContainsAny(s.Driver, "/\x00") || len(s.Driver) > maxDriverName {
		return errors.New("the volume names no CSI driver")
	}
	if !v.Inline && v.Source.CSI.VolumeHandle == "" {
		return errors.New("CSIPersistentVolumeSource volume handle is empty")
	}
	return nil
}

// saveData writes vol_data.json, which a kubelet needs to unmount the volume. The parameter uid is empty if the volume is staged.
func (d *Drivers) saveData(dir string, v storage.Volume, uid types.UID) error {
	data := map[string]string{
		dataHandle: volumeID(v, uid), dataDriver: v.Source.CSI.Driver, dataName: v.Name, dataNode: d.cfg.Node, dataMode: "Persistent",
		dataAttachment: d.attachmentName(v),
	}
	if v.Inline {
		data[dataMode] = "Ephemeral"
	}
	if v.Label != "" {
		data[dataLabel] = v.Label
	}
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s: %w", dataFile, err)
	}
	text = append(text, '\n')
	name := filepath.Join(dir, dataFile)
	if old, err := regular.Read(name, maxData); err == nil && bytes.Equal(old, text) {
		return nil // if the disk is full, a write would only remove the content
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make the directory of %s: %w", dataFile, err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return fmt.Errorf("save volume info data: %w", err)
	}
	return nil
}

// removeDeviceData removes the vol_data.json of a block volume, and its directories if they are empty then.
func (d *Drivers) removeDeviceData(v storage.Volume) error {
	file := d.stagedData(v, "")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = removeEmpty(filepath.Dir(file))
	_ = removeEmpty(filepath.Dir(filepath.Dir(file))) // may contain other directories of a kubelet
	return nil
}

// unmountAndRemove unmounts everything that is mounted at path and removes the empty directory. If data is true, it
// also removes vol_data.json and the parent directory.
func (d *Drivers) unmountAndRemove(path string, data bool) error {
	if err := mounts.Detach(path); err != nil {
		return err
	}
	if err := removeEmpty(path); err != nil {
		return err
	}
	if !data {
		return nil
	}
	if err := os.Remove(filepath.Join(filepath.Dir(path), dataFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeEmpty(filepath.Dir(path))
}

// removeEmpty removes an empty directory or an empty file. If the directory or file is not empty, it returns an error.
func removeEmpty(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().IsRegular() && fi.Size() > 0 {
		return fmt.Errorf("%s is not empty, so it is not removed", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
