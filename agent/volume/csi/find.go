package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/regular"
)

// maxData is the maximum size of a vol_data.json.
const maxData = 64 << 10

// Find returns the volumes that drivers may have staged or published, according to the files vol_data.json of this node or of a kubelet.
// If such a file cannot be read although the volume is mounted, the volume has no driver. Then the unmount fails and the mount stays, until
// the machine reboots.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/3756-volume-reconstruction
func (d *Drivers) Find(known func(string) bool) (found []storage.Found, err error) {
	var errs []error
	for _, pattern := range []string{
		"plugins/" + pluginName + "/*/*/" + dataFile,
		"plugins/" + pluginName + "/volumeDevices/*/data/" + dataFile,
		"pods/*/volumes/kubernetes.io~csi/*/" + dataFile,
		"pods/*/volumeDevices/kubernetes.io~csi/*",
	} {
		names, err := fs.Glob(os.DirFS(d.root), pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			m, file := d.findAt(name)
			if known(m.Path) {
				continue
			}
			if err := readData(file, &m.Volume); err != nil {
				target := m.Path
				if m.Volume.Block && m.Pod != "" {
					target = d.publishPath(m.Volume, m.Pod)
				}
				if checkNotMounted(target, err) == nil {
					continue
				}
				m.Volume.Inline = true
				errs = append(errs, err)
			}
			found = append(found, m)
		}
	}
	return found, errors.Join(errs...)
}

// findAt returns the mount to which a path below the root directory belongs, without the data of the volume, and the path of the file with
// this data. The path matches one of the patterns of Find.
func (d *Drivers) findAt(name string) (m storage.Found, file string) {
	file, parts := filepath.Join(d.root, name), strings.Split(name, "/")
	m.Volume.Source.CSI = &v1.CSIPersistentVolumeSource{}
	m.Volume.Block = strings.Contains(name, "/volumeDevices/")
	if parts[0] == "pods" {
		m.Pod, m.Volume.Name = types.UID(parts[1]), parts[4]
	}
	switch {
	case !m.Volume.Block && m.Pod == "":
		m.Path = filepath.Join(filepath.Dir(file), "globalmount")
	case !m.Volume.Block:
		m.Path = filepath.Join(filepath.Dir(file), "mount")
	case m.Pod == "":
		m.Volume.Name = parts[4]
		m.Path = d.StagePath(m.Volume)
	default:
		m.Path, file = file, d.stagedData(m.Volume, "")
	}
	return m, file
}

// readData reads the data of a volume from a vol_data.json.
func readData(file string, v *storage.Volume) error {
	text, err := regular.Read(file, maxData)
	if err != nil {
		return err
	}
	var data map[string]string
	if err := json.Unmarshal(text, &data); err != nil {
		return fmt.Errorf("decode %s: %w", file, err)
	}
	s := &v1.CSIPersistentVolumeSource{Driver: data[dataDriver], VolumeHandle: data[dataHandle]}
	read := storage.Volume{Source: v1.PersistentVolumeSource{CSI: s}, Inline: data[dataMode] == "Ephemeral"}
	if err := checkSource(read); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	v.Source, v.Inline, v.Label = read.Source, read.Inline, data[dataLabel]
	if v.Name == "" {
		v.Name = data[dataName]
	}
	if v.Name == "" { // a kubelet does not store the name of a volume that is staged
		v.Name = s.VolumeHandle
	}
	return nil
}
