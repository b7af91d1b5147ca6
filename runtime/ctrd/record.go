package ctrd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/readonly"
)

// recordFormat is the newest record format that this program can read. The number changes only if
// an older program would misread the new format. A new field does not change the number: older
// programs ignore the field, and it is empty in older records. Records without a number have format 1.
// Sandboxes of a containerd shim have format 2.
const (
	recordFormat = 2
	plainFormat  = 1
)

// errNewer is the error of a record with a newer format.
var errNewer = errors.New("written by a newer version of islet: install that version again, or end the pods with its islet cleanup")

// A sandboxRecord is the persistent state of a sandbox. Changes of Stopped and Resized are appended
// to the file. In memory, Config and Resized are set only while the record is written or read,
// because a sandbox also has them decoded.
type sandboxRecord struct {
	Format  int    `json:"format"`
	ID      string `json:"id"`
	Config  []byte `json:"config"` // api.PodSandboxConfig
	Handler string `json:"handler,omitempty"`
	// Program is an OCI runtime, or the handler's containerd shim. It is empty if an earlier
	// version of islet wrote the record.
	Program   string    `json:"program,omitempty"`
	Tasks     bool      `json:"tasks,omitempty"` // whether Program is a containerd shim
	CreatedAt time.Time `json:"createdAt"`
	Boot      string    `json:"boot,omitempty"` // the kernel's boot ID at creation; empty if an earlier version created it
	IPs       []string  `json:"ips,omitempty"`
	Shim      string    `json:"shim"`
	Level     string    `json:"seLinuxLevel,omitempty"` // SELinux level for containers that specify none
	Tool      bool      `json:"tool,omitempty"`         // whether a tool at the CRI socket created it
	Resized   []byte    `json:"resized,omitempty"`      // an api.LinuxPodSandboxConfig with the current resources and the overhead
	Stopped   bool      `json:"stopped,omitempty"`
}

// A containerRecord is the persistent state of a container. In memory, Config is set only while the
// record is written or read.
type containerRecord struct {
	Format     int      `json:"format"`
	ID         string   `json:"id"`
	Sandbox    string   `json:"sandbox"`
	Config     []byte   `json:"config"`          // an api.ContainerConfig after withoutSecrets
	Image      string   `json:"image,omitempty"` // the image's digest in its registry
	ImageID    string   `json:"imageID"`
	Chain      string   `json:"chain,omitempty"` // chain ID of the image's layers
	StopSignal string   `json:"stopSignal,omitempty"`
	Volumes    []string `json:"volumes,omitempty"` // chain IDs of the images that the container mounts
	// ImageVolumes is the number of directories for VOLUMEs of its image.
	ImageVolumes int `json:"imageVolumes,omitempty"`
	// User is the user of the container's first process. It is nil if an earlier version created the container.
	User      *specs.User `json:"user,omitempty"`
	CreatedAt time.Time   `json:"createdAt"`
	Boot      string      `json:"boot,omitempty"` // see sandboxRecord.Boot
	containerEnd
}

// A containerEnd is the change that records the end of a container. It contains the record of a young sandbox, because only the
// container's record is synced. After a power cut, restoreSandbox uses it. In memory, PodSandbox is set only while the record is written
// or read.
type containerEnd struct {
	progress
	PodSandbox *sandboxRecord `json:"podSandbox,omitempty"`
}

// A progress is the part of a container's record that changes. Changes are appended to the file.
type progress struct {
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Signaled   bool      `json:"signaled,omitempty"` // whether the stop signal was sent
}

// recordFile is a container's record in its directory.
const recordFile = "record.json"

// A record file is a sequence of JSON objects, one per line. The first object is complete. Each
// later one contains the fields that have changed. So a change needs no new file, and often no
// additional disk write, because the page is already dirty.

// createRecord writes a new record. It is not synced, so a power cut may lose it.
func createRecord(path string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// appendRecord appends changed fields to a record. If sync is set, the change survives a power cut
// once appendRecord has returned.
func appendRecord(path string, change any, sync bool) error {
	b, err := json.Marshal(change)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	st, err := f.Stat()
	if err == nil {
		if _, err = f.Write(append(b, '\n')); err != nil {
			f.Truncate(st.Size()) // if the disk is full, leave no partial line
		}
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// maxChanges is the size in bytes that the changes of a record may reach, in addition to several times the size of its first object.
const maxChanges = 128 << 10

// changeRecord is appendRecord for a change that may be repeated any number of times, such as new limits. It does not sync the change. If
// the record has grown too large, changeRecord makes it smaller.
func (r *Runtime) changeRecord(path string, change any) error {
	if err := appendRecord(path, change, false); err != nil {
		return err
	}
	if err := compactRecord(path); err != nil {
		r.log.Warn("a record has grown and could not be made smaller: the next change tries again", "path", path, "error", err)
	}
	return nil
}

// compactRecord replaces a record that is too large with a single object, which also has the fields that this version does not know.
func compactRecord(path string) error {
	st, err := os.Stat(path)
	if err != nil || st.Size() <= maxChanges {
		return err
	}
	b, err := os.ReadFile(path)
	if first := bytes.IndexByte(b, '\n'); err != nil || len(b) <= maxChanges+4*first {
		return err
	}
	var merged map[string]json.RawMessage
	if err := readRecord(path, &merged); err != nil {
		return err
	}
	if b, err = json.Marshal(merged); err != nil {
		return err
	}
	return durable.Write(path, append(b, '\n'), 0o600)
}

// readRecord reads a record. It truncates a partial last line, which a power cut may have left. It
// returns an error if the first object is partial, and errNewer if the format is newer than
// recordFormat.
func readRecord(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var first struct{ Format int }
	if line, _, _ := bytes.Cut(b, []byte("\n")); json.Unmarshal(line, &first) == nil && first.Format > recordFormat {
		return fmt.Errorf("%s: %w", path, errNewer)
	}
	good := 0
	for line := range bytes.Lines(b) {
		if line[len(line)-1] != '\n' || json.Unmarshal(line, v) != nil {
			break
		}
		good += len(line)
	}
	switch good {
	case 0:
		return errors.New("the record is incomplete")
	case len(b):
		return nil
	}
	// A partial line cannot be removed from a faulty disk. Ignore this error, because the lines
	// before the partial line are complete.
	if err := os.Truncate(path, int64(good)); !readonly.IsDiskFault(err) {
		return err
	}
	return nil
}

// encode encodes a configuration for a record. It does not retain the message.
func encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
