package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/untrusted"
)

const (
	leaseFile = "userns" // file in a pod's directory; a kubelet uses the same name
	maxLease  = 4096
)

// A lease is the stored range of a pod in a kubelet's format, which allows more mappings than islet uses.
type lease struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func encodeLease(r Range) []byte {
	m := []mapping{{HostID: r.First, Length: r.Count}}
	b, _ := json.Marshal(lease{UIDs: m, GIDs: m}) // numbers only
	return b
}

func decodeLease(b []byte) (Range, error) {
	var l lease
	if err := json.Unmarshal(b, &l); err != nil {
		return Range{}, fmt.Errorf("invalid user namespace mappings file: %w", err)
	}
	if len(l.UIDs) != 1 || len(l.GIDs) != 1 || l.UIDs[0] != l.GIDs[0] {
		return Range{}, errors.New("invalid user namespace mappings file: there must be one mapping of UIDs, and the same of GIDs")
	}
	if l.UIDs[0].ContainerID != 0 {
		return Range{}, errors.New("invalid user namespace mappings file: UID 0 must be mapped")
	}
	r := Range{l.UIDs[0].HostID, l.UIDs[0].Length}
	if err := r.validate(); err != nil {
		return Range{}, fmt.Errorf("invalid user namespace mappings file: %w", err)
	}
	return r, nil
}

// readLease reads the range of a pod. If the pod has none, the error is fs.ErrNotExist.
func readLease(pods string, uid types.UID) (Range, error) {
	b, err := untrusted.ReadFile(filepath.Join(pods, string(uid)), leaseFile, maxLease)
	if err != nil {
		return Range{}, err
	}
	return decodeLease(b)
}

// writeLease stores a range for a pod. When it returns, the lease has been written to the disk.
func writeLease(pods string, uid types.UID, r Range) error {
	if !filepath.IsLocal(string(uid)) || filepath.Base(string(uid)) != string(uid) {
		return fmt.Errorf("pod UID %q cannot be a directory name", uid)
	}
	dir := filepath.Join(pods, string(uid))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := durable.Write(filepath.Join(dir, leaseFile), encodeLease(r), 0o600); err != nil {
		return err
	}
	return durable.SyncDir(pods)
}

// dropLease removes the lease of a pod. If there is none, it succeeds.
func dropLease(pods string, uid types.UID) error {
	err := os.Remove(filepath.Join(pods, string(uid), leaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
