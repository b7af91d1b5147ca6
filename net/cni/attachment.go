package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/durable"
)

// attachment is the stored CNI request (ADD) that added a sandbox to a network. The request DEL needs the same values.
type attachment struct {
	ID           string            `json:"id"`
	NetNS        string            `json:"netns"`
	Plugins      []json.RawMessage `json:"plugins"`
	Name         string            `json:"name"`
	CNIVersion   string            `json:"cniVersion"`
	Args         [][2]string       `json:"args"`
	Capabilities map[string]any    `json:"capabilities,omitempty"`
	// Installed contains the plugin types for which an installed plugin was run instead of the built-in one. DEL needs the installed
	// plugin: the built-in one would succeed without removing the objects of the installed one. Earlier versions of islet ignore this
	// field.
	Installed []string `json:"installed,omitempty"`
}

func newAttachment(list *libcni.NetworkConfigList, id, netns string, cfg *api.PodSandboxConfig) (*attachment, error) {
	a := &attachment{ID: id, NetNS: netns, Name: list.Name, CNIVersion: list.CNIVersion}
	for _, p := range list.Plugins {
		a.Plugins = append(a.Plugins, p.Bytes)
	}
	m := cfg.GetMetadata()
	a.Args = [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", m.GetNamespace()}, {"K8S_POD_NAME", m.GetName()},
		{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", m.GetUid()},
	}
	for _, arg := range a.Args {
		if strings.ContainsAny(arg[1], ";=\x00\n") {
			return nil, fmt.Errorf("%s %q cannot be an argument of a CNI plugin", arg[0], arg[1])
		}
	}
	var err error
	a.Capabilities, err = capabilityArgs(cfg)
	return a, err
}

func (a *attachment) configList() (*libcni.NetworkConfigList, error) {
	list := &libcni.NetworkConfigList{Name: a.Name, CNIVersion: a.CNIVersion}
	for _, data := range a.Plugins {
		p, err := libcni.NetworkPluginConfFromBytes(data)
		if err != nil {
			return nil, fmt.Errorf("stored configuration of sandbox %s: %w", a.ID, err)
		}
		list.Plugins = append(list.Plugins, p)
	}
	var err error
	list.Bytes, err = json.Marshal(map[string]any{"name": a.Name, "cniVersion": a.CNIVersion, "plugins": a.Plugins})
	return list, err
}

func (a *attachment) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: a.ID, NetNS: a.NetNS, IfName: Interface, Args: a.Args, CapabilityArgs: a.Capabilities}
}

// attachmentStore stores a file for each sandbox for which the command ADD was started.
type attachmentStore struct{ dir string }

func (s attachmentStore) filePath(id string) string { return filepath.Join(s.dir, id+".json") }

// read returns the attachment of a sandbox, or nil if there is none.
func (s attachmentStore) read(id string) (*attachment, error) {
	data, err := os.ReadFile(s.filePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CNI attachment: %w", err)
	}
	a := &attachment{}
	if err := json.Unmarshal(data, a); err != nil || a.ID != id {
		return nil, fmt.Errorf("CNI attachment of sandbox %s is damaged: remove %s", id, s.filePath(id))
	}
	return a, nil
}

// write stores an attachment durably. After a power loss, the addresses that plugins assigned are still on disk, and
// they can be released only with the attachment.
func (s attachmentStore) write(a *attachment) error {
	data, err := json.Marshal(a)
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = durable.Write(s.filePath(a.ID), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("store CNI attachment of sandbox %s: %w", a.ID, err)
	}
	return nil
}

func (s attachmentStore) remove(id string) error {
	if err := os.Remove(s.filePath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CNI attachment: %w", err)
	}
	return nil
}

func (s attachmentStore) listIDs() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list CNI attachments: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && validID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
