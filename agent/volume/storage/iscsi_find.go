package storage

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/runtime/mounts"
)

// stagedDisk is the name of the path of a disk, see StagePath.
var stagedDisk = pattern.New(`^(.*?:[0-9]+)-(.*)-lun-([0-9]+)$`)

// contextOption is the mount option with the SELinux label of all files.
var contextOption = pattern.New(`(?:^|,)context=(?:"([^"]*)"|([^,"]*))`)

// labelIn returns the SELinux label in the options of a file system, or "".
func labelIn(options string) string {
	if m := contextOption().FindStringSubmatch(options); m != nil {
		return m[1] + m[2]
	}
	return ""
}

// Find returns the disks whose paths exist, also if they are not mounted: the target may be logged in.
func (d *iscsi) Find(known func(string) bool) (found []Found, err error) {
	for kind, below := range map[string]string{"volumes": "", "volumeDevices": "volumeDevices/"} {
		staged, err := fs.Glob(os.DirFS(d.root), "plugins/kubernetes.io/iscsi/"+below+"iface-*/*")
		if err != nil {
			return nil, err
		}
		for _, name := range staged {
			path := filepath.Join(d.root, name)
			parts := stagedDisk().FindStringSubmatch(filepath.Base(path))
			if parts == nil || known(path) {
				continue
			}
			lun, _ := strconv.ParseInt(parts[3], 10, 32)
			v := Volume{Name: parts[0], Block: kind == "volumeDevices", Source: v1.PersistentVolumeSource{
				ISCSI: &v1.ISCSIPersistentVolumeSource{
					TargetPortal: parts[1], IQN: parts[2], Lun: int32(lun),
					ISCSIInterface: strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "iface-"),
				},
			}}
			if d.StagePath(v) != path || checkNames(&v.Source) != nil {
				continue
			}
			if m, err := mounts.FindTopmost(path); err == nil && m != nil {
				v.Label = labelIn(m.VFSOptions)
			}
			found = append(found, Found{Volume: v, Path: path})
			pods, err := fs.Glob(os.DirFS(d.root), "pods/*/"+kind+"/kubernetes.io~iscsi/*")
			if err != nil {
				return nil, err
			}
			for _, name := range pods {
				at := filepath.Join(d.root, name)
				v.Name = filepath.Base(at)
				if !known(at) && isSameDisk(path, at, v.Block) {
					found = append(found, Found{Volume: v, Pod: types.UID(strings.Split(name, "/")[1]), Path: at})
				}
			}
		}
	}
	return found, nil
}

// isSameDisk reports whether a path of a pod is that of the disk which is mounted or linked at the path staged.
func isSameDisk(staged, path string, block bool) bool {
	if block {
		a, err1 := os.Readlink(staged)
		b, err2 := os.Readlink(path)
		return err1 == nil && err2 == nil && a == b
	}
	a, err1 := mounts.FindTopmost(staged)
	b, err2 := mounts.FindTopmost(path)
	return err1 == nil && err2 == nil && a != nil && b != nil && a.Major == b.Major && a.Minor == b.Minor
}
