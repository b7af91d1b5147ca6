package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/printable"
)

// format is the version of the archive's format.
const format = 1

const (
	manifestName = "backup.json" // the first entry
	endName      = "end"         // the last entry
	stateDir     = "state/"
	certDir      = "cert/"
	filesDir     = "files/"

	databaseName = "islet.db"
	bundleRecord = "bundle.json"
	bundlesDir   = "bundles/"
	indexRecord  = "update/index.json" // the newest index of versions that the node has seen
	k3sLink      = "k3s/current"       // link to the directory of the k3s cluster
	k3sDir       = "k3s/a/"            // an archive has its files under this name

	maxEntries  = 4096
	maxName     = 1024
	maxManifest = 256 << 10
	maxFile     = 2 << 20
	maxRecord   = 32 << 20 // of a file of the state directory, such as a configuration that was sent
	maxDatabase = 512 << 20
	maxTotal    = maxDatabase + 128<<20
	maxListed   = 1000 // numbers of bundles, links and omitted files
)

// A Manifest describes an archive.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of islet
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	State   string    `json:"state"` // --state-dir
	Cert    string    `json:"cert"`  // --cert-dir
	// Recipient is the node's public key for sealed Secrets. It is empty if the node has no key.
	Recipient string `json:"recipient,omitempty"`
	Sealed    bool   `json:"sealed,omitempty"` // store.key is sealed to the TPM
	// Bundles are the highest numbers of bundles that the node ever used, and Signed is the latest time at which one of them was signed.
	Bundles map[string]int64 `json:"bundles,omitempty"`
	Signed  time.Time        `json:"signed,omitzero"`
	Failed  []string         `json:"failed,omitempty"` // digests of bundles that the node does not try again by itself
	InUse   *bundleName      `json:"inUse,omitempty"`
	// Links are the symbolic links in --cert-dir, with the names of their targets.
	Links map[string]string `json:"links,omitempty"`
	// Omitted are files that belong to the configuration and are too large, hidden, or no regular files.
	Omitted []string `json:"omitted,omitempty"`
}

// errNewerFormat means that a newer islet has written the archive.
var errNewerFormat = errors.New("a newer islet has written it")

func decodeManifest(data []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	if m.Format > format {
		return nil, fmt.Errorf("%w (%s): restore it with that version; nothing was changed", errNewerFormat, printable.Line(m.Version))
	}
	return &m, m.validate()
}

func (m *Manifest) validate() error {
	switch {
	case m.Format < 1:
		return fmt.Errorf("%s has no format", manifestName)
	case m.Node == "" || m.Node != printable.Line(m.Node) || len(m.Node) > maxName:
		return fmt.Errorf("%s has no valid node name", manifestName)
	case max(len(m.Bundles), len(m.Links), len(m.Omitted), len(m.Failed)) > maxListed:
		return fmt.Errorf("%s has a list of more than %d elements", manifestName, maxListed)
	}
	for from, to := range m.Links {
		if !isPlainName(from) || !isPlainName(to) {
			return fmt.Errorf("%s has a link from %.80q to %.80q: only files of --cert-dir may have links", manifestName, from, to)
		}
	}
	return nil
}

// checkDirs returns an error if the node had other directories than this board.
func (m *Manifest) checkDirs(d config.Dirs) error {
	var flags []string
	if m.State != d.State {
		flags = append(flags, "--state-dir="+m.State)
	}
	if m.Cert != d.Cert {
		flags = append(flags, "--cert-dir="+m.Cert)
	}
	if len(flags) == 0 {
		return nil
	}
	return fmt.Errorf("the agent of the backup was started with other directories than %s and %s: give the flags %s to islet restore, "+
		"and start the agent with them", d.State, d.Cert, printable.Line(strings.Join(flags, " ")))
}

// isPlainName reports whether a name is a file name without a directory.
func isPlainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && len(name) < 256 &&
		printable.Line(name) == name
}

// checkName returns an error if an archive must not have an entry with this name.
func checkName(name string) error {
	wrong := fmt.Errorf("%.80q is not the name of a file in a backup", name)
	if len(name) > maxName || path.Clean(name) != name || printable.Line(name) != name || strings.HasPrefix(name, "/") {
		return wrong
	}
	if rest, ok := strings.CutPrefix(name, stateDir); ok {
		if rest == databaseName || rest == keyName || rest == indexRecord || isRecord(rest) || isBundleFile(rest) || isK3sFile(rest) {
			return nil
		}
		return wrong
	}
	if rest, ok := strings.CutPrefix(name, certDir); ok && isPlainName(rest) {
		return nil
	}
	if rest, ok := strings.CutPrefix(name, filesDir); ok && rest != "" && !slices.Contains(strings.Split(rest, "/"), "..") {
		return nil
	}
	return wrong
}

// isRecord reports whether a file of the state directory is a record that a backup has. A later islet may have other records, which this
// one restores and ignores.
func isRecord(name string) bool {
	base, ok := strings.CutSuffix(name, ".json")
	return ok && isPlainName(name) && !strings.HasPrefix(name, ".") && base != "" && name != journalName &&
		name != "bundle-report.json" && name != "bundle-source.json"
}

// isK3sFile reports whether a name belongs to a file of the k3s cluster. The list of files that an interrupted islet join has still to
// write is not such a file, because the agent would write to the paths in that list.
func isK3sFile(name string) bool {
	file, ok := strings.CutPrefix(name, k3sDir)
	return ok && k3s.IsFile(file)
}

// isBundleFile reports whether a name belongs to a document of a bundle in the state directory.
func isBundleFile(name string) bool {
	parts := strings.Split(name, "/")
	if parts[0] != strings.TrimSuffix(bundlesDir, "/") || len(parts) < 3 || len(parts) > 4 {
		return false
	}
	for _, p := range parts {
		if !isPlainName(p) || strings.HasPrefix(p, ".") {
			return false
		}
	}
	return len(parts) == 3 || parts[2] == "files"
}

// limitOf returns the maximum size of an entry.
func limitOf(name string) int64 {
	switch name {
	case stateDir + databaseName:
		return maxDatabase
	case manifestName:
		return maxManifest
	case endName:
		return 0
	}
	if strings.HasPrefix(name, stateDir) {
		return maxRecord
	}
	return maxFile
}
