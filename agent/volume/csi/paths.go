package csi

import (
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
	"github.com/islet-edge/islet/runtime/mounts"
)

const (
	dirMode  = 0o750
	dataFile = "vol_data.json"
)

// The keys of vol_data.json, which are a kubelet's.
const (
	dataName       = "specVolID"
	dataHandle     = "volumeHandle"
	dataDriver     = "driverName"
	dataNode       = "nodeName"
	dataAttachment = "attachmentID"
	dataMode       = "volumeLifecycleMode"
)

// own is where CSI volumes are that are the node's.
func (d *Drivers) own(elem ...string) string {
	return filepath.Join(append([]string{d.root, "plugins", pluginName}, elem...)...)
}

// Place gives the directory that a driver is to mount at: below the volume's, which holds
// vol_data.json too.
func (d *Drivers) Place(v storage.Volume, usual string) string {
	if v.Block {
		return usual
	}
	return filepath.Join(usual, "mount")
}

// StagePath is where a volume is staged, if its driver does that. One that is not
// registered may: the volume's pod waits for it anyhow.
func (d *Drivers) StagePath(v storage.Volume) string {
	switch {
	case v.Inline:
		return ""
	case v.Block:
		return d.own("volumeDevices", "staging", v.Name)
	}
	return d.own(v.Source.CSI.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(v.Source.CSI.VolumeHandle))), "globalmount")
}

// publishPath is where a driver puts the device of a block volume for a pod.
func (d *Drivers) publishPath(v storage.Volume, uid types.UID) string {
	return d.own("volumeDevices", "publish", v.Name, string(uid))
}

// podOf gives the UID of the pod whose volume is at a path.
func (d *Drivers) podOf(path string) types.UID {
	rest, ok := strings.CutPrefix(path, filepath.Join(d.root, "pods")+"/")
	if uid, _, more := strings.Cut(rest, "/"); ok && more {
		return types.UID(uid)
	}
	return ""
}

// handleOf is the ID of a volume for its driver; an inline one gets it from its pod.
func handleOf(v storage.Volume, uid types.UID) string {
	if v.Inline {
		return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+v.Name)))
	}
	return v.Source.CSI.VolumeHandle
}

// attachment names the VolumeAttachment of a volume at this node.
func (d *Drivers) attachment(v storage.Volume) string {
	s := v.Source.CSI
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(s.VolumeHandle+s.Driver+d.cfg.Node)))
}

// check refuses what would lead out of the directories in paths.
func check(v storage.Volume) error {
	if s := v.Source.CSI; s == nil || s.Driver == "" || s.Driver == "." || s.Driver == ".." || strings.ContainsAny(s.Driver, "/\x00") || len(s.Driver) > maxDriverName {
		return errors.New("the volume names no CSI driver")
	}
	if !v.Inline && v.Source.CSI.VolumeHandle == "" {
		return errors.New("CSIPersistentVolumeSource volume handle is empty")
	}
	return nil
}

// save writes what a kubelet would need to undo a volume.
func (d *Drivers) save(dir string, v storage.Volume, uid types.UID) error {
	data := map[string]string{dataHandle: handleOf(v, uid), dataDriver: v.Source.CSI.Driver}
	if uid != "" {
		data[dataName], data[dataNode], data[dataMode] = v.Name, d.cfg.Node, "Persistent"
		data[dataAttachment] = d.attachment(v)
		if v.Inline {
			data[dataMode] = "Ephemeral"
		}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s: %w", dataFile, err)
	}
	if err := os.WriteFile(filepath.Join(dir, dataFile), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("save volume info data: %w", err)
	}
	return nil
}

// clear leaves nothing mounted at a path, and removes it if it is empty then, and the
// directory that it is in with what save wrote.
func (d *Drivers) clear(path string, data bool) error {
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

// removeEmpty removes a directory or a file that has nothing in it. What has is data that
// is not to be removed.
func removeEmpty(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().IsRegular() && fi.Size() > 0 {
		return fmt.Errorf("%s has data: it is left as it is", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
