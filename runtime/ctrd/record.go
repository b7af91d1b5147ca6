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

	"github.com/islet-edge/islet/internal/readonly"
)

// recordFormat is the newest format of records that this program understands. It
// counts changes that an older one would misread: a field that is added is none,
// for it is read as empty and written past. Records without a number are of 1; those
// of sandboxes that a containerd shim runs are of 2.
const (
	recordFormat = 2
	plainFormat  = 1
)

// errNewer says that a record was written by a newer program.
var errNewer = errors.New("written by a newer version of islet: install that again, or end its pods with its islet cleanup")

// A sandboxRecord is what is durable of a sandbox. Stopped and Resized are changes.
type sandboxRecord struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"`
	Config    []byte    `json:"config"` // api.PodSandboxConfig
	Handler   string    `json:"handler,omitempty"`
	Program   string    `json:"program,omitempty"` // an OCI runtime, or the handler's containerd shim; empty: of an islet that did not record its own
	Tasks     bool      `json:"tasks,omitempty"`   // it is a containerd shim
	CreatedAt time.Time `json:"createdAt"`
	Boot      string    `json:"boot,omitempty"` // in which it was made; empty: of an earlier islet
	IPs       []string  `json:"ips,omitempty"`
	Shim      string    `json:"shim"`
	Level     string    `json:"seLinuxLevel,omitempty"` // of its containers that bring none
	Tool      bool      `json:"tool,omitempty"`         // made by a tool at the CRI socket
	Resized   []byte    `json:"resized,omitempty"`      // api.LinuxPodSandboxConfig: resources and overhead since
	Stopped   bool      `json:"stopped,omitempty"`
}

// A containerRecord is what is durable of a container.
type containerRecord struct {
	Format     int      `json:"format"`
	ID         string   `json:"id"`
	Sandbox    string   `json:"sandbox"`
	Config     []byte   `json:"config"`          // api.ContainerConfig, withoutSecrets
	Image      string   `json:"image,omitempty"` // by digest in its registry
	ImageID    string   `json:"imageID"`
	Chain      string   `json:"chain,omitempty"` // of the image's layers
	StopSignal string   `json:"stopSignal,omitempty"`
	Volumes    []string `json:"volumes,omitempty"` // chains of the images that it mounts
	// ImageVolumes is how many directories it has for the VOLUMEs of its image.
	ImageVolumes int `json:"imageVolumes,omitempty"`
	// User is whom its first process runs as; nil: made by an earlier islet.
	User      *specs.User `json:"user,omitempty"`
	CreatedAt time.Time   `json:"createdAt"`
	Boot      string      `json:"boot,omitempty"` // as a sandbox's
	course
}

// A course is how a container has fared, a change of its record.
type course struct {
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Signaled   bool      `json:"signaled,omitempty"` // it was sent its stop signal
}

// recordFile is a container's record in its directory.
const recordFile = "record.json"

// A record file holds JSON objects one after the other: the first is whole, each
// later one has the fields that have changed. So a change costs no new file, and
// often no more than the page that is to be written anyway.

// createRecord writes a new record. It is not synced: a power cut may leave none.
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

// appendRecord adds what has changed. With sync it survives a power cut from then
// on.
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
			f.Truncate(st.Size()) // a full disk leaves no half line
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

// readRecord reads a record. An end that a power cut tore is cut off; a record
// whose first object is torn is an error, as is one of a newer format (errNewer).
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
		return errors.New("no whole record")
	case len(b):
		return nil
	}
	if err := os.Truncate(path, int64(good)); !readonly.Fault(err) { // then the rest stays: what was read is whole
		return err
	}
	return nil
}

// pack encodes a configuration for its record. The message is not kept.
func pack(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
